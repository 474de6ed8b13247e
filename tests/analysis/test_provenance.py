"""What is kept beside numbers is what was used, installed or not."""

import importlib.metadata

import eigenscape as es
from eigenscape.analysis.provenance import versions


def test_the_version_is_one_number_for_package_metadata_and_records():
    assert versions()["eigenscape"] == es.__version__ == importlib.metadata.version("eigenscape")


def test_a_checkout_that_is_not_installed_knows_its_version(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert versions()["eigenscape"] == es.__version__
