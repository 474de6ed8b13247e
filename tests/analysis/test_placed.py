"""An objective in another precision is the same objective."""

import pytest
import torch
from small_nets import objective
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import eigenscape as es
from eigenscape.analysis import placed


def test_values_agree_and_the_original_is_untouched():
    obj = objective()
    low = placed(obj, dtype=torch.float32)
    assert (low.dtype, obj.dtype) == (torch.float32, torch.float64)
    assert float(low.loss()) == pytest.approx(float(obj.loss()), rel=1e-5)
    assert low.model is not obj.model
    assert next(obj.model.parameters()).dtype == torch.float64


def test_nothing_asked_nothing_changed():
    obj = objective()
    assert placed(obj) is obj
    assert placed(obj, torch.device("cpu"), torch.float64) is obj


def test_selection_weights_loaders_and_class_weights_survive():
    X, y = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 2
    loader = DataLoader(TensorDataset(X, y), 4)
    criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 3.0]))
    obj = es.Objective(nn.Linear(3, 2), criterion, loader, params="bias", micro_batch=3)
    wide = placed(obj, dtype=torch.float64)
    assert wide.layout == obj.layout
    assert wide.num_samples == obj.num_samples == 20
    assert wide.loss().dtype == torch.float64
    assert float(wide.loss()) == pytest.approx(float(obj.loss()), rel=1e-6)
    assert len(list(wide.batches())) == len(list(obj.batches())) == 5
