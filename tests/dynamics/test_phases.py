"""Every phase is told where its definition holds, and the definitions are written down."""

import pytest

from eigenscape.dynamics import PHASES, phase


def rows(ratio, loss, share=None, threshold=10.0):
    return [
        {
            "ratio": r,
            "ratio_low": r,
            "effective_sharpness": r * threshold,
            "sharpness": r * threshold,
            "loss": l,
            "gradient_norm": 1.0,
            "gradient_share": s,
        }
        for r, l, s in zip(ratio, loss, share or [0.5] * len(ratio))
    ]


CASES = {
    "progressive sharpening": rows([0.2, 0.3, 0.4, 0.5, 0.6, 0.7], [6, 5, 4, 3, 2, 1]),
    "flattening": rows([0.7, 0.6, 0.5, 0.4, 0.3, 0.2], [6, 5, 4, 3, 2, 1]),
    "steady": rows([0.5] * 6, [6, 5, 4, 3, 2, 1]),
    "edge of stability": rows([0.95, 1.05, 0.98, 1.1, 1.02, 0.97], [6, 5, 5.2, 4, 4.1, 3]),
    "catapult": rows([2.0, 2.0, 2.0, 1.5, 0.8, 0.7], [1, 1, 2, 4, 3, 1]),
    "divergence ahead": rows([1.5, 1.6, 1.7, 1.8, 1.9, 2.0], [1, 1, 1, 1.05, 1.1, 1.2], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
    "beyond the edge": rows([1.5, 1.6, 1.7, 1.8, 1.9, 2.0], [6, 5, 4, 3, 2, 1]),
    "warming up": rows([0.1, 0.2], [2, 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_phases(name):
    assert phase(CASES[name]) == name


def test_a_loss_that_still_rises_is_no_catapult():
    """An exploding run whose sharpness dips once."""
    assert phase(rows([2.5, 2.8, 3.4, 6.7, 260.0, 130.0], [1, 1, 2, 3, 600, 3000])) == "beyond the edge"


def test_every_phase_is_defined_and_seen():
    assert set(PHASES) == set(CASES)


def test_missing_cells_are_borne():
    bare = [{"sharpness": 1.0 + 0.1 * i, "loss": 1.0} for i in range(6)]
    assert phase(bare) == "progressive sharpening"
    assert phase([{"sharpness": 1.0, "loss": None, "ratio": None}] * 4) == "steady"
