from __future__ import annotations

import json

from daskmetrics.report.plots import _losses as losses


def told(folder, count):
    folder.mkdir()
    lines = [json.dumps({"step": step, "loss": 8.0 / step, "rate": None}) for step in range(1, count + 1)]
    (folder / "progress.jsonl").write_text("\n".join(lines) + '\n{"step": 9', encoding="utf-8")
    return folder


def test_the_figure_lies_beside_the_checkpoints(tmp_path):
    path = losses.write(told(tmp_path / "tiny", 300))
    assert path == tmp_path / "tiny" / "loss.png"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_half_a_line_is_passed_over(tmp_path):
    assert losses.read(told(tmp_path / "tiny", 3)) == [(1, 8.0), (2, 4.0), (3, 8 / 3)]


def test_thinned_points_keep_the_first_and_the_last_step():
    points = [(step, float(step)) for step in range(1, 501)]
    kept = losses.thinned(points)
    assert len(kept) <= losses.MOST_POINTS
    assert (kept[0][0], kept[-1][0]) == (1, 500)


def test_nothing_told_is_nothing_drawn(tmp_path):
    assert losses.write(tmp_path) is None
