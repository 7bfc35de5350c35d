"""What tasks have cost in earlier runs, from their journals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from daskmetrics.errors import DaskmetricsError
from daskmetrics.execution.journal import read


@dataclass(frozen=True)
class Cost:
    """Median seconds of a task.

    Attributes
    ----------
    encode : float
        Of one checkpoint, all layers.
    score : float
        Of one layer.
    cells : int
        Scores that this was seen in.
    """

    encode: float
    score: float
    cells: int


def costs(runs: Path) -> Mapping[str, Cost]:
    """The cost of each task in the runs of a folder; a journal that cannot be read is passed over."""
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for journal in sorted(runs.glob("*/journal.jsonl")):
        try:
            entries = list(read(journal))
        except DaskmetricsError:
            continue
        for entry in entries:
            score = entry["type"] == "record" and entry["kind"] == "score" and entry["status"] == "ok"
            if score and entry["worker"] != "imported":
                task = entry["name"].partition(":")[2]
                seen[task].append((entry["value"]["encode_seconds"], entry["seconds"]))
    return {
        task: Cost(median(encode for encode, _ in found), median(score for _, score in found), len(found))
        for task, found in seen.items()
    }
