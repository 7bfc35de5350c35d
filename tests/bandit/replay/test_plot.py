from __future__ import annotations

import pytest

from daskmetrics.bandit.replay import Plan, Setting, Terms, conduct

figures = pytest.importorskip("daskmetrics.bandit.replay._report", reason="needs the extra 'plot'")


def test_the_curves_are_drawn(known, tmp_path):
    trials = list(conduct(Plan(known, Terms(), 0.3), [Setting("race"), Setting("random")], range(2)))
    path = figures.draw(trials, tmp_path / "new" / "replay.png")
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
