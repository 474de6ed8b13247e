"""A gallery comes from the store alone, has everything its pages link to, and takes nothing else away."""

import base64
import re
from dataclasses import replace

import pytest
from small_figure import EXPERIMENT, FIGURE

pytest.importorskip("pyarrow")

from eigenscape.core import DataError
from eigenscape.experiments.machine import Plan, Store, gallery, measure_missing
from eigenscape.experiments.machine.gallery import write_gallery
from eigenscape.report.style import canvas, styled


@styled
def crowd(rows):
    """Many dots, one line of few points."""
    fig = canvas(4, 3)
    ax = fig.subplots()
    ax.scatter(range(5000), [(7919 * i) % 5000 for i in range(5000)], s=2)
    ax.plot([0, 5000], [0, 5000])
    ax.set(xlabel="number", ylabel="shuffled")
    return fig


PLAN = Plan([FIGURE, replace(FIGURE, id="other/crowd", title="Many [dots] | bars", draw=crowd)], "smoke")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with Store.writing(tmp_path_factory.mktemp("run")) as store:
        measure_missing(PLAN, store)
        yield store


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_pages_link_to_what_is_there(tmp_path, store):
    written = write_gallery(PLAN, store, tmp_path)
    there = contents(tmp_path)
    assert set(there) == {str(path.relative_to(tmp_path)) for path in written}
    assert set(there) == {
        "index.md",
        "small.md",
        "other.md",
        "figures/small/fig1.svg",
        "figures/other/crowd.svg",
        "rows/small/descent.parquet",
    }
    anchors = {f"{name}#{a}" for name, text in there.items() for a in re.findall(r'<a id="(.*?)">', text.decode("latin1"))}
    for name, text in there.items():
        if name.endswith(".md"):
            links = re.findall(r"\]\(([^)]*)\)", text.decode())
            assert links
            assert all(link in there or link in anchors for link in links)
    front = there["index.md"].decode()
    assert "2 figures and 4 claims: 2 agree, 2 cannot be judged." in front
    assert re.search(r"^\| small \| 1 \| 8 \| 24 \| 120 \| [\d.]+ m?s \|$", front, re.MULTILINE)
    assert re.search(r"^\| all \| 2 \| 8 \| 24 \| 120 \| ", front, re.MULTILINE)
    assert "a claim &lt;without&gt; numbers" in there["small.md"].decode()


def test_the_same_store_gives_the_same_bytes(tmp_path, store):
    write_gallery(PLAN, store, tmp_path)
    before = contents(tmp_path)
    (tmp_path / "stale.md").write_text("from an earlier gallery")
    write_gallery(PLAN, store, tmp_path)
    assert contents(tmp_path) == before


def test_what_is_crowded_becomes_pixels_and_the_rest_stays_lines(tmp_path, store):
    write_gallery(PLAN, store, tmp_path)
    text = (tmp_path / "figures/other/crowd.svg").read_text()
    assert len(text) < 120_000
    (image,) = re.findall(r'xlink:href="data:image/png;base64,([^"]*)"', text)
    assert base64.b64decode(image).startswith(b"\x89PNG")
    assert ">shuffled</text>" in text  # letters stay letters
    assert "base64" not in (tmp_path / "figures/small/fig1.svg").read_text()


def test_a_folder_with_other_files_is_left_alone(tmp_path, store):
    (tmp_path / "index.md").write_text("# My own page")
    with pytest.raises(DataError, match="holds other files than a gallery; expected an empty folder, or none: use another"):
        write_gallery(PLAN, store, tmp_path)
    assert contents(tmp_path) == {"index.md": b"# My own page"}


def test_a_gallery_that_is_too_large_is_refused(tmp_path, store, monkeypatch):
    monkeypatch.setattr(gallery, "LARGEST", 10_000)
    with pytest.raises(DataError, match=r"has 0.\d MB; expected at most 0: a smaller --profile, or drawings with fewer marks"):
        write_gallery(PLAN, store, tmp_path)


def test_what_could_not_be_measured_is_said(tmp_path, store):
    def fails(rows):
        raise ValueError("no picture")

    write_gallery(Plan([replace(FIGURE, draw=fails, experiments=[EXPERIMENT])], "smoke"), store, tmp_path)
    page = (tmp_path / "small.md").read_text()
    assert "Drawing ended with ValueError: no picture" in page
    assert "![" not in page
