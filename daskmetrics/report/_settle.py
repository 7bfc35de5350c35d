"""What would settle a tie: which tasks need how many more items, at what cost, by which command."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from daskmetrics.config import Model, Recipe, Section
from daskmetrics.core._readouts import Readout
from daskmetrics.core._text import duration, plural
from daskmetrics.core.names import Arm, Cell, training_order
from daskmetrics.report._evidence import Evidence
from daskmetrics.report._format import in_words, number
from daskmetrics.report._verdict import Verdict
from daskmetrics.tasks._mteb import MtebTask
from daskmetrics.tasks._mteb_subsets import SPLIT, declared
from daskmetrics.tasks._registry import FILE, MTEB, parse_options, resolve

ARMS = 32  #: that a further run compares at most
GROWTH = 100.0  #: times as many items; if a tie needs more, the arms count as equal
LIMITS = ("confidence", "cells", "gpu_hours", "wall_hours", "baseline")  # of a search, which a sweep must not have


@dataclass(frozen=True)
class Settlement:
    """What would settle a tie."""

    text: str  # what to do, or why nothing helps
    items: Mapping[str, int] = field(default_factory=dict)  # to add, by task
    seconds: float | None = None  # worker time of the command, as measured in this run; None if there is no command
    command: str = ""  # for a shell; empty if this data cannot settle the tie


def settlement(evidence: Evidence, verdict: Verdict) -> Settlement | None:
    """What would settle the tie of a verdict; None if there is none, or if the simplest arm is the highest, too."""
    one = verdict.overall
    if one.maybe or (not one.tied and len(verdict.arms) > 1):
        return _score_missing(evidence, list(dict.fromkeys([one.arm, *one.tied, *one.maybe])), one.unseen)
    if len(one.tied) < 2 or one.arm == one.simplest or one.loss is None:
        return None
    return _more_items(evidence, verdict)


def _score_missing(evidence: Evidence, arms: Sequence[Arm], unseen: int) -> Settlement:
    """Scores of all tasks for the arms that may be the best, in a run of their own or by searching on."""
    tasks, whole = list(evidence.weights), _grid(evidence, arms)
    if len(whole) > ARMS or unseen > len(arms):
        return _search_on(evidence, len(arms) + unseen)
    missing = sum(task not in evidence.recorded.get(arm, {}) for arm in arms for task in tasks)
    seconds = _seconds(evidence, whole, dict.fromkeys(tasks, 1.0))
    text = (
        f"Score {plural(len(arms), 'arm')} on all tasks, of which they lack {plural(missing, 'cell')}: a run of its "
        f"own with {plural(len(whole), 'arm')} takes about {duration(seconds)} of worker time."
    )
    return Settlement(text, {}, seconds, _command(evidence, arms))


def _search_on(evidence: Evidence, arms: int) -> Settlement:
    """The same search with twice the budget; known scores are not computed again."""
    answer = evidence.answer
    share = min(1.0, 2 * max(answer.spent, answer.budget) / answer.exhaustive)
    seconds = share * answer.exhaustive - answer.spent
    text = f"Search on: {plural(arms, 'arm')} may be the best. Twice the budget is {duration(seconds)} more (assumed)."
    limits = (f"search.{key}=null" for key in LIMITS[:-1] if evidence.config["search"].get(key) is not None)
    words = ["daskmetrics", "run", f"{evidence.folder}/config.yaml", "--folder", f"{evidence.folder}"]
    words += ["--budget", f"{share:.3g}", "--spend", f"{share:.3g}"]
    return Settlement(text, {}, seconds, shlex.join([*words, *_set(limits)]))


def _more_items(evidence: Evidence, verdict: Verdict) -> Settlement:
    """Items that would tell the highest arm from the simplest one, if their difference stays what it is."""
    one = verdict.overall
    assert one.loss is not None
    pair, sizes = [one.arm, one.simplest], {task: evidence.recorded[one.arm][task].get("n") or 0 for task in one.tasks}
    variance = _variance(evidence, pair, one.tasks)
    needed = (one.loss.value / one.critical) ** 2 if one.loss.value > 0 else 0.0
    factor = sum(variance.values()) / needed if needed > 0 else math.inf
    if factor > GROWTH:
        high, simple = (in_words([arm], evidence.arms) for arm in pair)
        return Settlement(f"Not worth it: even {GROWTH:.0f} times as many items would not tell {high} from {simple}.")
    growth = _growth(evidence, variance, needed, one.tied)
    if not growth:
        text = (
            f"This data cannot: about {factor:.1f} times as many items would be needed, and its tasks have no more. "
            f"Take the simplest: it loses at most {number(one.most_lost)}."
        )
        return Settlement(text)
    items = {task: math.ceil((times - 1) * sizes[task]) for task, times in growth.items()}
    renamed = {task: larger for task in growth if (larger := _larger(task))}
    steps = [_step(task, more, growth[task], renamed.get(task)) for task, more in items.items()]
    seconds = _seconds(evidence, _grid(evidence, one.tied), {task: growth.get(task, 1.0) for task in one.tasks})
    text = (
        f"{'; '.join(steps)}, if the difference stays {number(one.loss.value, sign=True)}. Then compare the tied arms "
        f"in a run of their own, about {duration(seconds)} of worker time."
    )
    return Settlement(text[0].upper() + text[1:], items, seconds, _command(evidence, one.tied, renamed))


def _variance(evidence: Evidence, pair: Sequence[Arm], tasks: Sequence[str]) -> dict[str, float]:
    """What every task adds to the variance of the difference of two arms."""
    errors = (evidence.means(pair, [task]).difference(0, 1).stderr for task in tasks)
    shares = evidence.shares(tasks)
    return {task: float((share * error) ** 2) for task, share, error in zip(tasks, shares, errors, strict=True)}


def _growth(evidence: Evidence, variance: Mapping[str, float], needed: float, arms: Sequence[Arm]) -> dict[str, float]:
    """By what factor the items of some tasks must grow, so that the variance falls to what is needed, at least cost.

    The tasks of the greatest variance grow, all by one factor; the error of a mean falls with the root of the items.
    """
    rooms = {task: _room(task) for task in variance}
    able = sorted((task for task in variance if rooms[task] > 1), key=lambda task: -variance[task])
    options = []
    for count in range(1, len(able) + 1):
        inside = sum(variance[task] for task in able[:count])
        left = needed - (sum(variance.values()) - inside)
        if left > 0 and inside / left <= min(GROWTH, *(rooms[task] for task in able[:count])):
            factors = dict.fromkeys(able[:count], inside / left)
            options.append((_seconds(evidence, arms, factors), factors))
    return min(options, key=lambda option: option[0])[1] if options else {}


def _room(task: str) -> float:
    """By what factor the items of a task can grow: without limit if they are the user's own, 1 if there are no more."""
    if task.startswith(FILE):
        return math.inf
    if (larger := _larger(task)) is None:
        return 1.0
    sizes = [made.statistics for made in resolve([task, larger]) if isinstance(made, MtebTask)]
    return sizes[1].texts / sizes[0].texts if len(sizes) == 2 and sizes[0] and sizes[1] else 1.0


def _larger(task: str) -> str | None:
    """A task of the benchmark with the splits that it has and this one leaves out, but not the one for training."""
    name, options = parse_options(task)
    known = declared(name.removeprefix(MTEB)) if name.startswith(MTEB) else None
    if known is None:
        return None
    used = options.get("split", SPLIT if SPLIT in known.splits else "+".join(known.splits)).split("+")
    more = [split for split in known.splits if split not in used and split != "train"]
    if not more:
        return None
    given = ", ".join(f"{key}={value}" for key, value in {**options, "split": "+".join([*used, *more])}.items())
    return f"{name}({given})"


def _step(task: str, items: int, factor: float, larger: str | None) -> str:
    """What to do for one task."""
    if larger:
        return f"use {larger} in place of {task}: about {items:,} more items are needed ({factor:.1f} times as many)"
    file = parse_options(task)[0].removeprefix(FILE)
    return f"add about {items:,} items to {file} ({factor:.1f} times as many)"


def _seconds(evidence: Evidence, arms: Sequence[Arm], growth: Mapping[str, float]) -> float:
    """Worker time to score arms on tasks of this many times as many items, from the medians measured in the run."""
    checkpoints, total = {arm.checkpoint for arm in arms}, 0.0
    for task, factor in growth.items():
        encode = [own[task]["encode_seconds"] for own in evidence.recorded.values() if task in own]
        score = [evidence.seconds.get(Cell(arm, task), 0.0) for arm, own in evidence.recorded.items() if task in own]
        if encode:
            total += factor * (len(checkpoints) * median(encode) + len(arms) * median(score))
    return total


def _command(evidence: Evidence, arms: Sequence[Arm], renamed: Mapping[str, str] | None = None) -> str:
    """A sweep of these arms alone, in a folder of its own."""
    path, search = evidence.folder, evidence.config["search"]
    settings = [*_models(evidence, arms), *(f"search.{key}=null" for key in LIMITS if search.get(key) is not None)]
    if renamed:
        written = {_name(entry): entry for entry in evidence.config["tasks"]}
        names = [renamed.get(task) or written.get(task, task) for task in evidence.kinds]
        settings.append(f"tasks={json.dumps(names)}")
    words = ["daskmetrics", "run", f"{path}/config.yaml", "--folder", f"{path}-tie", "--policy", "sweep"]
    return shlex.join([*words, *_set(settings)])


def _set(settings: Iterable[str]) -> Iterator[str]:
    return (word for setting in settings for word in ("--set", setting))


def _grid(evidence: Evidence, arms: Sequence[Arm]) -> list[Arm]:
    """The arms of a run whose models have these layers, revisions and readouts: every combination of them."""
    known: dict[str, list[set[Any]]] = {}
    for arm in arms:
        for values, value in zip(known.setdefault(arm.model, [set() for _ in _parts(arm)]), _parts(arm), strict=True):
            values.add(value)
    same_model = [each for each in evidence.arms if each.model in known]
    return [arm for arm in same_model if all(p in own for p, own in zip(_parts(arm), known[arm.model], strict=True))]


def _parts(arm: Arm) -> tuple[Any, ...]:
    return (arm.layer, arm.revision, *vars(Readout.parse(arm.readout)).values())


def _readouts(arms: Iterable[Arm]) -> dict[str, list[Any]]:
    """The section of a configuration whose readouts contain those of arms."""
    found: dict[str, dict[Any, None]] = {}
    for read in dict.fromkeys(Readout.parse(arm.readout) for arm in arms):
        together = f"{read.join}({', '.join(map(str, read.together))})" if read.together else "each"
        kept = read.kept if read.kept and not read.principal else read.dimensions or "all"
        parts = {"pooling": read.pooling or "protocol", "layers": together, "dimensions": kept}
        for name, value in {**parts, "whitening": read.whitening, "storage": read.storage}.items():
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}


def _models(evidence: Evidence, arms: Sequence[Arm]) -> list[str]:
    """Settings that leave only the layers and revisions of some arms."""
    chosen: dict[str, dict[str, Any]] = {}
    for model in dict.fromkeys(arm.model for arm in arms):
        own = [arm for arm in arms if arm.model == model]
        read = {layer for arm in own for layer in Readout.parse(arm.readout).layers_of(arm.layer)}
        chosen[model] = {"layers": sorted(read)}
        if any(arm.readout for arm in evidence.arms if arm.model == model):
            chosen[model]["readouts"] = _readouts(own)
        if len({arm.revision for arm in evidence.arms if arm.model == model}) > 1:
            chosen[model]["revisions"] = training_order({arm.revision for arm in own})
    models = evidence.config["models"]
    if len(models) > len(chosen):
        given = [_not_default(Model, model) | chosen[model["name"]] for model in models if model["name"] in chosen]
        for each in given:
            if recipe := each.get("train"):
                each["train"] = _not_default(Recipe, recipe)
        return [f"models={json.dumps(given)}"]
    return [
        f"models.{place}.{key}={_setting(value)}"
        for place, model in enumerate(models)
        for key, value in chosen[model["name"]].items()
    ]


def _setting(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else f"[{','.join(map(str, value))}]"


def _not_default(section: type[Section], values: Mapping[str, Any]) -> dict[str, Any]:
    """What a section says beside its defaults; a shape that stands beside a size may replace a part of it."""
    fields = section.model_fields
    kept = ("width", "depth", "heads") if values.get("size") else ()
    return {
        key: value for key, value in values.items() if key in kept or key not in fields or value != fields[key].default
    }


def _name(entry: str) -> str:
    """The name in results of a task as the configuration writes it: a file's has no folder."""
    name, _ = parse_options(entry)
    return entry.replace(name, FILE + Path(name.removeprefix(FILE)).name, 1) if name.startswith(FILE) else entry
