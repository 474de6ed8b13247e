"""Doctests may use `torch` and `es`; each test process computes on one thread."""

import importlib.util

import pytest
import torch

import eigenscape as es

torch.set_num_threads(1)
collect_ignore = [] if importlib.util.find_spec("triton") else ["src/eigenscape/curvature/attention/kernels.py"]


@pytest.fixture(autouse=True)
def _names(doctest_namespace):
    doctest_namespace.update(torch=torch, es=es)
