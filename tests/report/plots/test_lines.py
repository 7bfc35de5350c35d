from __future__ import annotations

import json
from typing import get_args, get_type_hints

import pytest

from daskmetrics.bandit import Pick
from daskmetrics.core.steps import spread
from daskmetrics.report.plots import _interactive
from daskmetrics.report.plots.lines import (
    LINES,
    MOST_LOSSES,
    STAGES,
    averaged,
    read_losses,
    write_losses,
)

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("count", [1, 8, 9, 144])
def test_few_lines_are_drawn_from_the_first_checkpoint_to_the_last(count):
    names = [f"step{i}" for i in range(count)]
    shown = spread(names, LINES)
    assert len(shown) == min(count, 8) == len(set(shown)) and (shown[0], shown[-1]) == (
        names[0],
        names[-1],
    )


def recorded(folder, count):
    folder.mkdir()
    lines = [
        json.dumps({"step": step, "loss": 8.0 / step, "rate": None}) for step in range(1, count + 1)
    ]
    (folder / "progress.jsonl").write_text("\n".join(lines) + '\n{"step": 9', encoding="utf-8")
    return folder


def test_the_figure_is_written_beside_the_checkpoints(tmp_path):
    path = write_losses(recorded(tmp_path / "tiny", 300))
    assert path == tmp_path / "tiny" / "loss.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_half_a_line_is_ignored(tmp_path):
    assert read_losses(recorded(tmp_path / "tiny", 3)) == [(1, 8.0), (2, 4.0), (3, 8 / 3)]


def test_averaged_points_keep_the_first_and_the_last_step():
    points = [(step, float(step)) for step in range(1, 501)]
    kept = averaged(points)
    assert len(kept) <= MOST_LOSSES
    assert (kept[0][0], kept[-1][0]) == (1, 500)


def test_a_suite_without_losses_has_no_figure(tmp_path):
    assert write_losses(tmp_path) is None


def test_every_stage_of_a_search_is_shown_on_its_path():
    stages = set(get_args(get_type_hints(Pick)["stage"]))
    assert stages == STAGES.keys() == _interactive.STAGES.keys()
