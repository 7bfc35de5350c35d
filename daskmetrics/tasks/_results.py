"""Results as mteb keeps them: one JSON file per task, below a folder per model, revision and layer.

``results/MODEL/REVISION/experiments/layer_3__.../TASK.json`` since mteb 2.26. Reading needs no benchmark; writing is
left to the benchmark itself, and to one process.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.tasks._task import Score

META = "model_meta.json"
#: Numbers that belong to a single run or a single threshold of a measure, and multiply the size of a score.
_LEFT_OUT = ("nauc", "scores_per_experiment", "v_measures", "ami_scores")


@dataclass(frozen=True)
class Result:
    """The score of one layer on one task of the benchmark.

    Attributes
    ----------
    model, revision : str
        As the benchmark calls them; the name has an organisation and a slash.
    layer : int
    task : str
    plain : mapping
        What the file holds.
    settings : mapping
        The experiment's keywords: ``layer``, and whatever else made it.
    path : Path
        Of the file; empty for one that was not read.
    """

    model: str
    revision: str
    layer: int
    task: str
    plain: Mapping[str, Any]
    settings: Mapping[str, Any]
    path: Path = Path()


def read(folder: Path) -> Iterator[Result]:
    """The results in a folder of the benchmark, layer by layer; those that name no layer are passed over.

    Raises
    ------
    ConfigError
        If there are none.
    DataError
        If a file is damaged.
    """
    results = folder / "results" if (folder / "results").is_dir() else folder
    files = [path for path in sorted(results.glob("*/*/experiments/*/*.json")) if path.name != META]
    if not files:
        raise ConfigError(
            f"'{folder}' holds no results by layer (results/MODEL/REVISION/experiments/layer_N.../TASK.json)."
        )
    for path in files:
        settings = _settings(path.parent)
        if "layer" in settings:
            model, revision = path.parents[3].name.replace("__", "/"), path.parents[2].name
            content = _json(path)
            task = str(content.get("task_name", path.stem))
            yield Result(model, revision, int(settings["layer"]), task, content, settings, path)


def write(found: Iterable[Result], folder: Path) -> int:
    """Write results by the benchmark's own ``ResultCache``; how many.

    Raises
    ------
    ConfigError
        If the benchmark is not installed.
    """
    from daskmetrics.tasks import _benchmark as benchmark

    mteb = benchmark.installed()
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

    cache, count = mteb.ResultCache(folder), 0
    for result in found:
        about = {"name": result.model, "revision": result.revision, "experiment_kwargs": dict(result.settings)}
        cache.save_to_cache(TaskResult.model_validate(dict(result.plain)), ModelMeta.create_empty(about))
        count += 1
    return count


def plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """A result's JSON with the numbers that most people read: main and other scores of each split and subset."""
    scores = {split: [_kept(subset) for subset in subsets] for split, subsets in content["scores"].items()}
    names = ("dataset_revision", "task_name", "mteb_version")
    return {**{name: content.get(name) for name in names}, "scores": scores, "spread": _spread(content)}


def score(content: Mapping[str, Any], kind: str, n: int) -> Score:
    """The main score, the mean over splits and subsets, with an error whose order of magnitude is right.

    Parameters
    ----------
    content : mapping
        As `plain` gives it, or a whole file.
    kind : str
    n : int
        Texts, pairs or queries that were judged; 0 if not known.

    Raises
    ------
    DataError
        If it holds no finite main score.
    """
    subsets = [subset for split in content.get("scores", {}).values() for subset in split]
    values = [subset.get("main_score") for subset in subsets]
    if not values or not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise DataError(f"The benchmark gave {values or 'nothing'} for task '{content.get('task_name')}'.")
    value = sum(values) / len(values)
    spread, draws = content.get("spread") or _spread(content) or (0.0, 1)
    judged = max(n, 4)
    if kind == "sts":
        error = (1 - value**2) * math.sqrt((1 + value**2 / 2) / max(1, judged - 3))
    elif kind == "clustering":
        error = spread
    else:
        error = math.sqrt(max(0.0, value * (1 - value)) / judged + spread**2 / draws)
    detail = {name: part for name, part in content.items() if name != "spread"}
    return Score(float(value), float(error), n, detail)


def _spread(content: Mapping[str, Any]) -> tuple[float, int] | None:
    """Standard deviation of the main score over the benchmark's own draws, and their number."""
    runs: list[float] = []
    for subset in (subset for split in content.get("scores", {}).values() for subset in split):
        own = subset.get("scores_per_experiment") or ()
        main = next(
            (name for name, each in subset.items() if name != "main_score" and each == subset.get("main_score")), ""
        )
        runs += [run[main] for run in own if isinstance(run, Mapping) and isinstance(run.get(main), int | float)]
        levels = subset.get("v_measures") or {}
        runs += [draw for level in (levels.values() if isinstance(levels, Mapping) else [levels]) for draw in level]
    if len(runs) < 2:
        return None
    mean = sum(runs) / len(runs)
    return math.sqrt(sum((run - mean) ** 2 for run in runs) / (len(runs) - 1)), len(runs)


def _kept(subset: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a subset that are finite, and what it is."""
    return {
        name: value
        for name, value in subset.items()
        if not name.startswith(_LEFT_OUT)
        and (not isinstance(value, float) or math.isfinite(value))
        and value is not None
    }


def _settings(experiment: Path) -> Mapping[str, Any]:
    """The keywords of an experiment, by what the benchmark wrote beside its results, or by its name."""
    about = experiment / META
    settings = dict((_json(about).get("experiment_kwargs") or {}) if about.is_file() else {})
    match = re.search(r"(?:^|_)layer_(\d+)(?:_|$)", experiment.name)
    return settings if "layer" in settings or not match else {**settings, "layer": int(match.group(1))}


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"'{path}' cannot be read: {error}. A result that was cut short must be made anew.") from None
