from __future__ import annotations

import pytest

from daskmetrics.bandit.replay import (
    ReplayPlan,
    ReplayStep,
    ReplayTrial,
    Scenario,
    Setting,
    describe,
    run_trials,
    summary_tables,
)
from daskmetrics.bandit.replay._report import ablation_table, draw


def trials(setting: Setting, found_at: float, n: int = 3) -> list[ReplayTrial]:
    path = (ReplayStep(0.001, 3.6, 0.5, 0.2, 0.4), ReplayStep(found_at, 3600 * found_at, 0.0, 0.95, 0.01))
    return [ReplayTrial(setting, seed, path, 2, 0.75) for seed in range(n)]


def test_a_plan_is_described_in_two_lines(known):
    text = describe(ReplayPlan(known, Scenario(subset=3), 0.1))
    assert "30 arms x 4 tasks, 3 of them drawn by each seed; 120 of 120 cells are known; all cost 4.2 h" in text
    assert "arms are within 1% of its mean score" in text


def test_every_setting_has_a_row():
    every = [*trials(Setting("race", 8), 0.01), *trials(Setting("random"), 0.05)]
    success, speed, calibrated = summary_tables(every, (0.01, 0.02), clock=True)
    assert success.header == ("policy", "1 %", "2 %")
    assert success.rows == (("race, 8 workers", "3/3", "3/3"), ("random", "0/3", "0/3"))
    assert speed.rows[0] == ("race, 8 workers", "1 %", "1 %", "1 %", "1 %", "36 s", "36 s", "0.75")
    assert calibrated.rows[2] == (
        *("race, 8 workers", "≥ 0.90", "0.950", "1.000", "0.439-1.000", "3"),
        *("3/3", "0.439-1.000", "1 %", "0 %"),
    )


def test_costs_without_seconds_show_no_time():
    _, speed, _ = summary_tables(trials(Setting("race"), 0.01), (0.01,), clock=False)
    assert "time" not in speed.header and len(speed.rows[0]) == len(speed.header)


def test_with_and_without_metrics_are_compared_side_by_side():
    every = [*trials(Setting("race"), 0.01, 40), *trials(Setting("race", metrics=False), 0.02, 40)]
    table = ablation_table(every, (0.01, 0.02))
    assert [row[:5] for row in table.rows] == [
        ("race", "1 %", "40/40", "0/40", "+1.00"),
        ("race", "2 %", "40/40", "40/40", "+0.00"),
    ]
    assert table.notes[0].startswith("race: Metrics help at 1 of the 2 costs compared")
    assert not ablation_table(trials(Setting("race"), 0.01), (0.01,)).rows


def test_the_curves_are_drawn(known, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra 'plot'")
    drawn = list(run_trials(ReplayPlan(known, Scenario(), 0.3), [Setting("race"), Setting("random")], range(2)))
    path = draw(drawn, tmp_path / "new" / "replay.png")
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
