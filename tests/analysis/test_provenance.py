"""What is kept beside numbers is what was used, installed or not."""

import importlib.metadata
import sys

import pytest

import eigenscape as es
from eigenscape.analysis.provenance import command, versions


def test_the_version_is_one_number_for_package_metadata_and_records():
    assert versions()["eigenscape"] == es.__version__ == importlib.metadata.version("eigenscape")


def test_a_checkout_that_is_not_installed_knows_its_version(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert versions()["eigenscape"] == es.__version__


@pytest.mark.parametrize(
    ("program", "typed"),
    [("/usr/bin/eigenscape", "eigenscape"), ("/site/eigenscape/__main__.py", "python -m eigenscape"), ("", "python")],
)
def test_the_command_is_what_was_typed(monkeypatch, program, typed):
    monkeypatch.setattr(sys, "argv", [program, "bench", "a b"])
    assert command() == f"{typed} bench 'a b'"
