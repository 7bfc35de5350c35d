"""What a result of mteb holds: its scores by split and subset, their mean, error and draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from statistics import stdev
from typing import Any, TypeAlias

from daskmetrics.core.errors import DataError
from daskmetrics.core.text import shortened
from daskmetrics.tasks._measures import correlation_error, with_error
from daskmetrics.tasks.mteb_run import ONLY
from daskmetrics.tasks.task import Score, Selection

Content: TypeAlias = Mapping[str, Any]  #: of a result file, or of a subset in it
#: Numbers of a single run or a single threshold; they would multiply the size of a score.
_OMITTED = ("nauc", "scores_per_experiment", "v_measures", "ami_scores")
_ABOUT = ("dataset_revision", "task_name", "mteb_version")  # what is kept beside the scores


def select(content: Content, wanted: Selection) -> Content:
    """The scores of these splits and subsets; `DataError` if one is missing."""
    scores: dict[str, list[Content]] = {}
    for split in wanted.splits:
        of_split = content.get("scores", {}).get(split, ())
        by_subset = _by_subset(of_split)
        missing = [name for name in wanted.subsets if name not in by_subset]
        if missing:
            raise DataError(f"split '{split}' has no score of {shortened(missing)}")
        scores[split] = [by_subset[name] for name in wanted.subsets]
    return {**content, "scores": scores}


def selection_of(content: Content) -> Selection:
    """The splits and subsets that a result holds."""
    scores = content["scores"]
    names = chain.from_iterable(map(_by_subset, scores.values()))
    return Selection(tuple(scores), tuple(dict.fromkeys(names)))


def mean(content: Content) -> float:
    """The mean main score; `DataError` if one is not a finite number."""
    values: list[Any] = [subset.get("main_score") for subset in _subsets(content)]
    numbers = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
    if not values or len(numbers) < len(values):
        task = content.get("task_name")
        raise DataError(f"mteb returned {values or 'no score'} for task '{task}'.")
    return float(sum(numbers) / len(numbers))


def score(content: Content, kind: str, n: int) -> Score:
    """The mean main score with an estimate of its error.

    Its detail is the content with finite scores alone, without the numbers of single draws.

    The error of perfect clusters is what one text in a cluster of its own would cost if there were
    two equal labels, whose number a result does not have; with more labels it costs less.

    ``n`` texts, pairs or queries were scored; 0 if not known.
    """
    value = mean(content)
    runs = draws(content)
    spread = 0.0  # of the main score over the draws of the benchmark
    if len(runs) > 1:
        spread = stdev(runs)
    units = max(n, 4)
    of_items = max(0.0, value * (1 - value)) / units
    if kind in ("sts", "summarization", "regression"):  # correlations
        error = correlation_error(value, units)
    elif kind == "clustering" and value == 1:
        entropies = 2 * units * math.log(2)
        error = (math.log(units / 2) + 1) / entropies
    elif kind == "clustering" and len(runs) > 1:
        error = spread
    else:
        error = math.sqrt(of_items + spread**2 / max(1, len(runs)))
    detail: dict[str, Any] = {name: content.get(name) for name in _ABOUT}
    detail["scores"] = {
        split: list(map(_finite, subsets)) for split, subsets in content["scores"].items()
    }
    return with_error(Score(value, float(error), n, detail), units)


def _finite(subset: Content) -> dict[str, object]:
    finite = {}
    for name, value in subset.items():
        is_number = not isinstance(value, float) or math.isfinite(value)
        if is_number and value is not None and not name.startswith(_OMITTED):
            finite[name] = value
    return finite


def _subsets(content: Content) -> list[Content]:
    return list(chain.from_iterable(content.get("scores", {}).values()))


def _by_subset(scores: Iterable[Content]) -> dict[str, Content]:
    """Scores of a split by subset; those without a name get one."""
    by_subset = {}
    for i, subset in enumerate(scores):
        default = f"{ONLY}-{i}" if i else ONLY
        by_subset[subset.get("hf_subset", default)] = subset
    return by_subset


def draws(content: Content) -> list[float]:
    """The main score of every draw; empty if the benchmark does not draw.

    mteb lists experiments of a classification by the name of the score, which it does not give
    beside the main score.
    """
    scores: list[float] = []
    for subset in _subsets(content):
        main_score = subset.get("main_score")
        names = [name for name in subset if name != "main_score" and subset[name] == main_score]
        for run in subset.get("scores_per_experiment") or ():
            value = None
            if names and isinstance(run, Mapping):
                value = run.get(names[0])
            if isinstance(value, int | float):
                scores.append(value)
        levels = subset.get("v_measures") or ()
        if isinstance(levels, Mapping):
            levels = chain.from_iterable(levels.values())
        scores += levels
    return scores
