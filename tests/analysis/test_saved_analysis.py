"""An analysis on disk is the same analysis; anything else on disk is refused with a sentence."""

import dataclasses
import json
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from small_nets import objective
from torch import nn

import eigenscape as es
from eigenscape.analysis import analyze, load


@pytest.fixture(scope="module")
def analysis():
    obj = objective(width=4)
    options = {"small": 0, "density_steps": 8, "density_probes": 2, "ggn_density": True, "blocks": True}
    return analyze(obj, k=3, learning_rate=0.1, name="tiny & small", notes={"data": "random"}, **options)


@pytest.fixture
def folder(analysis, tmp_path):
    return analysis.save(tmp_path / "new" / "folder")


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if dataclasses.is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b or (a != a and b != b)


def test_a_round_trip_changes_nothing(analysis, folder):
    again = load(folder)
    for field in dataclasses.fields(analysis):
        assert same(getattr(analysis, field.name), getattr(again, field.name)), field.name
    assert repr(again) == repr(analysis)


def test_all_eigenvalues_and_numbers_that_json_lacks_survive(tmp_path):
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    a = analyze(es.Objective(model, lambda f, y: f.sum() ** 4, (torch.ones(1, 1), torch.zeros(1, 1))))
    again = load(a.save(tmp_path))
    assert same(a.spectrum, again.spectrum)
    assert again.gradient_share != again.gradient_share
    assert again.critical_learning_rate.value == float("inf")
    assert a.condition == again.condition
    assert a.density is not None
    assert same(a.density, again.density)


def test_the_json_file_is_for_people(analysis, folder):
    tree = json.loads((folder / "analysis.json").read_text())
    assert tree == analysis.to_dict()
    assert tree["sharpness"]["value"] == tree["hessian"]["values"][0] == float(analysis.hessian.values[0])
    assert tree["layout"]["0.weight"] == [4, 6]
    assert tree["provenance"]["versions"]["torch"] == torch.__version__
    assert tree["trace"]["interval95"] == analysis.trace.interval().tolist()


def test_vectors_can_be_left_out(analysis, tmp_path):
    assert load(analysis.save(tmp_path, vectors=False)).hessian.vectors.shape == (analysis.num_parameters, 0)


def test_saving_again_replaces_and_leaves_no_parts(analysis, folder):
    analysis.save(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["analysis.json", "analysis.npz"]


def test_a_folder_without_analysis_is_refused(tmp_path):
    with pytest.raises(es.DataError, match=r"holds no analysis\.json; expected a folder that analysis\.save"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "is JSON of another kind"),
        ('{"format": "eigenscape.analysis", "version": 99}', "has format version 99; this release reads 1"),
        ('{"format": "eigenscape.analysis", "version": 1}', r"is damaged \(KeyError"),
    ],
)
def test_a_wrong_json_file_is_refused(folder, text, message):
    (folder / "analysis.json").write_text(text)
    with pytest.raises(es.DataError, match=message):
        load(folder)


def test_damaged_arrays_are_refused(folder):
    path = folder / "analysis.npz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(es.DataError, match="is damaged"):
        load(folder)


def test_pickled_objects_are_refused(folder):
    with np.load(folder / "analysis.npz") as found:
        arrays = dict(found) | {"hessian/vectors": np.array([{"an": "object"}], dtype=object)}
    np.savez(folder / "analysis.npz", allow_pickle=True, **arrays)
    with pytest.raises(es.DataError, match="is damaged"):
        load(folder)


class Links(HTMLParser):
    """Collects what a page loads, and the texts between tags; checks that tags nest."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self):
        super().__init__()
        self.loads, self.texts, self.open, self.ids = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data") and not str(value).startswith("#"):
                self.loads.append((tag, name, value))
            if name == "id":
                self.ids.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_report_is_one_page_that_loads_nothing_and_says_how(analysis, tmp_path):
    html = analysis.report(tmp_path / "deep" / "page.html").read_text()
    page = Links()
    page.feed(html)
    assert page.open == []
    assert page.loads == []
    assert len(page.ids) == len(set(page.ids))
    assert "<script" not in html
    assert "@import" not in html
    assert html.count("<svg") == 4
    text = " ".join(page.texts)
    for said in ("Curvature of tiny & small", "Sharpness", torch.__version__, str(analysis.provenance.seed), "random"):
        assert said in text
    for stage in analysis.provenance.stages:
        assert stage.status in text
        assert f"{stage.num_matvecs:,}" in text


def test_a_loaded_analysis_reports_the_same_page(analysis, folder, tmp_path):
    once, again = analysis.report(tmp_path / "a.html"), load(folder).report(tmp_path / "b.html")
    assert once.read_text() == again.read_text()


def test_the_sheet_has_four_named_panels(analysis):
    fig = analysis.plot()
    assert [ax.get_title(loc="left") for ax in fig.axes] == [
        "Largest eigenvalues",
        "Density",
        "By magnitude and sign",
        "Cumulative share",
    ]
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in fig.axes)
