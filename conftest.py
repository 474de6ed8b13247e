"""Doctests may use `torch` and `es`; each test process computes on one thread."""

import pytest
import torch

import eigenscape as es

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _names(doctest_namespace):
    doctest_namespace.update(torch=torch, es=es)
