"""Every verdict is supported by a fresh run, and no check can be satisfied by wrong derivatives."""

import json
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest
import torch

from eigenscape.experiments.ledger import deep_cases, oracle
from eigenscape.experiments.ledger.core import PROFILES, Ledger, LedgerError, Outcome, Profile, stream
from eigenscape.experiments.ledger.evidence import Evidence, Seen, Tally
from eigenscape.experiments.ledger.pages import corrections_page, escape, ledger_page
from eigenscape.experiments.ledger.record import record
from eigenscape.experiments.ledger.registry import LEDGER, PAPERS, SECTIONS

DOCS = Path(__file__).parents[2] / "docs"
TINY = Profile("quick", 1)
SAMPLE = ("L1", "L10", "L13", "R1", "B2", "C3", "A9", "S5", "E8", "E12", "D2", "S10")
# Rows on identities in which no derivative of a network occurs, or whose statement is an inequality too coarse to notice.
NO_DERIVATIVES = {
    "L8a", "L14", "L24", "C5", "A13", "S6", "S7", "S8", "E5", "E10", "E15", "E15a", "E16", "D2", "D3", "D3a", "D4", "D5",
}  # fmt: skip


def seen(row, profile=TINY, seed=0):
    return row.check(stream(seed, row.id), profile)


@pytest.fixture(scope="module")
def outcomes():
    return list(LEDGER.select(SAMPLE).run(TINY))


@pytest.mark.parametrize("title", SECTIONS)
def test_every_verdict_is_supported_by_what_is_seen(title):
    wrong = {r.id: (r.verdict, e) for r in SECTIONS[title] if (e := seen(r)).verdict != r.verdict}
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_verdicts_do_not_depend_on_the_random_cases(seed):
    wrong = [o.row.id for o in LEDGER.run(PROFILES["quick"], seed) if not o.matches]
    assert not wrong


def bend(monkeypatch):
    """Make autograd wrong by a few per cent, everywhere the ledger uses it."""

    def noise(shape):
        return 0.05 * torch.cos(1.3 * torch.arange(torch.Size(shape).numel(), dtype=torch.float64)).reshape(shape)

    true = {name: getattr(oracle, name) for name in ("hessians", "gradients", "gauss_newton")}
    jacobian = deep_cases.Deep.__dict__["jacobian"].func

    def wrong(name):
        def bent(*arguments):
            exact = true[name](*arguments)
            error = noise(exact.shape[1:])
            if exact.ndim == 3:
                error = (error + error.mT) * (1 + oracle.radius(exact))[:, None, None]
            return exact + error

        return bent

    for name in true:
        monkeypatch.setattr(oracle, name, wrong(name))
    bent = cached_property(lambda self: (J := jacobian(self)) + noise(J.shape[1:]))
    bent.__set_name__(deep_cases.Deep, "jacobian")
    monkeypatch.setattr(deep_cases.Deep, "jacobian", bent)


def assert_notice(rows, monkeypatch):
    bend(monkeypatch)
    exempt = NO_DERIVATIVES | {r.id for r in LEDGER if r.verdict.startswith("not")}
    blind = [r.id for r in rows if r.id not in exempt and seen(r).verdict == r.verdict]
    assert not blind


def test_wrong_derivatives_are_noticed(monkeypatch):
    assert_notice(LEDGER.select(SAMPLE), monkeypatch)


@pytest.mark.slow
def test_wrong_derivatives_are_noticed_by_every_row(monkeypatch):
    assert_notice(LEDGER, monkeypatch)


def test_any_other_verdict_would_not_match(outcomes):
    for outcome in outcomes:
        assert outcome.matches
        for verdict in {"holds", "holds under", "corrected", "false", "not decidable from the text"} - {outcome.row.verdict}:
            assert not Outcome(replace(outcome.row, verdict=verdict), outcome.evidence, 0.0).matches


def test_a_row_is_reproducible_and_does_not_depend_on_its_neighbours(outcomes):
    again = next(iter(LEDGER.select(["E12"]).run(TINY)))
    assert again.evidence == next(o for o in outcomes if o.row.id == "E12").evidence
    assert seen(LEDGER.rows["L1"], seed=1) != seen(LEDGER.rows["L1"], seed=0)


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (Evidence(Tally(5, 0, 1e-15), corrected=Tally(5, 1, 1.0)), "unsettled"),  # what is added fails
        (Evidence(Tally(5, 2, 1e-8)), "unsettled"),  # neither rounding nor a clear failure
        (Evidence(Tally(5, 2, 1.0), inside=Tally(0, 0, 0.0)), "unsettled"),  # the condition was never met
        (Evidence(Tally(5, 2, 1.0), inside=Tally(3, 1, 1.0)), "unsettled"),
        (Evidence(Tally(0, 0, 0.0)), "unsettled"),  # nothing was tried
        (Evidence(Tally(5, 0, 1e-15), library=Tally(5, 1, 1.0)), "unsettled"),  # the library is wrong
        (Evidence(Tally(5, 2, 1.0), corrected=Tally(5, 0, 0.0), inside=Tally(3, 0, 0.0)), "corrected"),
        (Evidence(corrected=Tally(5, 0, 0.0)), "unsettled"),
    ],
)
def test_a_verdict_follows_from_the_evidence(evidence, verdict):
    assert evidence.verdict == verdict


def test_errors_without_a_value_are_failures():
    evidence = Evidence.collect([Seen(torch.tensor([0.0, float("nan"), float("-inf")], dtype=torch.float64).abs())])
    assert evidence.printed == Tally(3, 2, float("inf"))


def test_ids_are_unique_and_verdicts_are_of_five_kinds():
    row = LEDGER.rows["L1"]
    with pytest.raises(LedgerError, match=r"row 'L1' exists already; expected a new id"):
        Ledger([row, row])
    with pytest.raises(LedgerError, match=r"verdict 'maybe'; expected one of holds, holds under"):
        Ledger([replace(row, verdict="maybe")])


def test_rows_are_selected_by_id_or_glob():
    assert [r.id for r in LEDGER.select(["B1*", "D1"])] == ["B1", "B1+", "D1"]
    assert len(LEDGER.select([])) == len(LEDGER) == sum(map(len, SECTIONS.values()))
    with pytest.raises(LedgerError, match=r"no row is called 'Z9'; expected an id such as L1, L2"):
        LEDGER.select(["Z9"])


def test_every_row_names_a_paper():
    for row in LEDGER:
        assert any(f"[{key}]" in row.source for key in PAPERS), row.id
        assert row.note or row.verdict == "holds", row.id


def test_the_record_is_strict_json_and_complete(outcomes):
    run = json.loads(json.dumps(record(outcomes, "quick", 0), allow_nan=False))
    assert set(run) == {"format", "profile", "seed", "torch", "seconds", "agree", "verdicts", "rows"}
    assert run["agree"] is True
    assert sum(run["verdicts"].values()) == len(run["rows"]) == len(SAMPLE)
    tally = {"cases", "failures", "error"}
    for row in run["rows"]:
        assert row["seen"] == row["verdict"] == LEDGER.rows[row["id"]].verdict
        assert row["section"] in SECTIONS
        for part in ("printed", "corrected", "under condition", "library"):
            assert row[part] is None or set(row[part]) == tally
    assert next(r for r in run["rows"] if r["id"] == "L13")["printed"]["error"] is None  # the zero vector: no value


def cells(page):
    """Rows of the tables of a page: id -> cells."""
    rows = [line.replace("\\|", "\0").strip("| ").split(" | ") for line in page.splitlines() if line.startswith('| <a id="')]
    return {r[0].split("</a>")[1]: [c.replace("\0", "\\|") for c in r[1:]] for r in rows}


def test_the_pages_say_what_the_rows_say(outcomes):
    table = cells(ledger_page(outcomes, "quick", 0))
    assert list(table) == [o.row.id for o in outcomes]
    for o in outcomes:
        assert table[o.row.id][:4] == [
            escape(o.row.source),
            escape(o.row.statement),
            f"**{o.row.verdict}**",
            escape(o.row.note),
        ]
    page = corrections_page(outcomes, "quick", 0)
    for o in outcomes:
        assert page.count(f"(claims.md#{o.row.id})") == (0 if o.row.verdict == "holds" else 1), o.row.id


def test_the_committed_pages_are_up_to_date():
    table = cells((DOCS / "claims.md").read_text(encoding="utf-8"))
    assert list(table) == [r.id for r in LEDGER]
    for row in LEDGER:
        assert table[row.id][:4] == [escape(row.source), escape(row.statement), f"**{row.verdict}**", escape(row.note)]
    page = (DOCS / "what-the-papers-get-wrong.md").read_text(encoding="utf-8")
    for row in LEDGER:
        named = f"([{row.id}](claims.md#{row.id.replace('+', '-plus')}))" in page
        assert named == (row.verdict != "holds" and row.kind != "ours"), row.id
        assert not named or escape(row.note) in page
