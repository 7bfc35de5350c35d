"""Lines, numbers and candidates as terminal, page and notebook show them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import filled, printable, text_width
from daskmetrics.core.text import plural, score_text
from daskmetrics.domain.names import Arm, LayerNames, layer_name

if TYPE_CHECKING:
    from daskmetrics.answer.answer import CheaperArm, MeasuredTask
    from daskmetrics.domain.outcomes import Difference  # imports numpy, which `status` need not

WIDTH = 100  #: most columns of a text for a terminal
LABEL = 12  #: columns of the labels on the left
NOTABLE = 1.05  #: times as fast, below which two candidates are equally fast
#: a note below a table in which gains over some of the tasks alone have a dagger
PARTIAL = "† only of the tasks that both were scored on"


class Line(NamedTuple):
    """A line of text with the label before it."""

    label: str
    text: str


def fact(label: str, text: str) -> str:
    """A label and its wrapped text, with unbroken paths.

    >>> fact("run", "demo")
    'run         demo'
    """
    label = printable(label)
    indent = f"{label:<{LABEL}}"
    if len(label) >= LABEL:
        indent = f"{label}: "
    return filled(printable(text), text_width(WIDTH), indent, " " * LABEL)


def candidate(arm: Arm, layer_names: LayerNames) -> str:
    """A candidate in words, with what its layer is called.

    >>> candidate(Arm("tiny", "step8", 3), {}), candidate(Arm("minilm", "main", 6, "last,64d"), {})
    ('tiny, step 8, layer 3', 'minilm, layer 6, last,64d')
    >>> candidate(Arm("own", "main", 1), {"own": ("first", "pooled")})
    'own, layer pooled'
    """
    revision = arm.revision
    step = arm.checkpoint.step
    if revision in (f"step{step}", f"checkpoint-{step}"):  # other numbers may be epochs
        revision = f"step {step:,}"
    words = [arm.model, revision, f"layer {layer_name(arm, layer_names)}", arm.readout]
    return ", ".join(word for word in words if word and word != "main")


def apart(difference: Difference, mark: str = " (unpaired)") -> str:
    """A difference with its standard error, marked if unpaired.

    >>> from daskmetrics.domain.outcomes import Difference
    >>> apart(Difference(0.02, 0.01, paired=True)), apart(Difference(0.02, 0.01, paired=False))
    ('+0.020 ± 0.010', '+0.020 ± 0.010 (unpaired)')
    """
    text = score_text(difference.value, difference.stderr, sign=True)
    if not difference.paired:
        text += mark
    return text


def gain_text(gain: Difference, default: str, relation: str, compared: int) -> str:
    """A gain over the default, with the relation by a test of all that were compared, if any."""
    text = f"{apart(gain)} over {default}, {relation}"
    return f"{text} of choosing among {compared:,}" if compared else text


def gap_text(difference: Difference | None) -> str:
    """A difference in a table, with an asterisk if unpaired."""
    return apart(difference, " *") if difference else ""


def unpaired_note(differences: Iterable[Difference | None]) -> list[str]:
    """The note on the asterisk of `gap_text`, if any."""
    if all(gap is None or gap.paired for gap in differences):
        return []
    return [
        "* not paired: outcomes are missing or of other items, so the error is that of two"
        " independent scores"
    ]


def mean_over(weights: Collection[float]) -> str:
    """What a mean is over, by the weights of its tasks.

    >>> mean_over([1.0]), mean_over([1.0, 2.0])
    ('mean of 1 task', 'weighted mean of 2 tasks')
    """
    weighted = "weighted " if len(set(weights)) > 1 else ""
    return f"{weighted}mean of {plural(len(weights), 'task')}"


def measured(
    tasks: Iterable[MeasuredTask],
    weights: Mapping[str, float],
    score: float | None,
    stderr: float | None,
) -> str:
    """A score by its measure, beside what guessing scores; or a mean of several tasks.

    >>> from daskmetrics.domain.plan import Floor, TaskInfo
    >>> floor = Floor(0.693, "largest class alone")
    >>> topics = TaskInfo("topics", "", "accuracy", "", "", floor=floor)
    >>> measured([topics], {"topics": 1.0}, 0.753, 0.04)
    'accuracy 0.753 ± 0.040 (largest class alone 0.693)'
    """
    text = score_text(score, stderr)
    counted = [task for task in tasks if weights.get(task.name)]
    if len(counted) != 1:
        return f"score {text} ({mean_over(weights.values())})"
    task = counted[0]
    floor = f" ({task.floor.text})" if task.floor else ""
    return f"{task.main_score} {text}{floor}"


def headline(best: str, score: str, tied: int, cheapest: str, is_guess: bool) -> str:
    """What to use: the best, any of a tie, or nothing.

    >>> headline("layer 4", "accuracy 0.753 ± 0.040", 1, "", False)
    'layer 4: accuracy 0.753 ± 0.040'
    >>> headline("layer 4", "accuracy 0.753 ± 0.040", 8, "layer 0", False)
    'any of 8; the cheapest is layer 0, the highest layer 4: accuracy 0.753 ± 0.040'
    """
    if is_guess:
        return f"none: no candidate is better than guessing; the highest is {best}: {score}"
    if tied < 2:
        return f"{best}: {score}"
    if cheapest:
        return f"any of {tied:,}; the cheapest is {cheapest}, the highest {best}: {score}"
    return f"any of {tied:,}; the cheapest and the highest is {best}: {score}"


def saving(cheaper: CheaperArm) -> str:
    """What a simpler candidate saves in measured terms, and what it loses."""
    cost, best = cheaper.cost, cheaper.best_cost
    saved = []
    if cost.seconds == 0.0:
        saved.append("no layer to compute")
    elif cheaper.speedup and cheaper.speedup > NOTABLE:
        saved.append(f"{cheaper.speedup:.1f} times as fast")
    elif cost.layers < best.layers and cost.whole is None:  # of vectors or of an encoder
        saved.append("an earlier layer")
    elif cost.layers < best.layers:
        saved.append(f"{cost.layers} layers in place of {best.layers}")
    if cost.bytes != best.bytes:
        saved.append(f"{cost.bytes:,} bytes a vector in place of {best.bytes:,}")
    loss = score_text(cheaper.loss.value, cheaper.loss.stderr)
    saved.append(f"loses {loss}, at most {score_text(cheaper.most_lost)} (95 %)")
    return ", ".join(saved)


def partly(tasks: Collection[str], shared: Collection[str]) -> str:
    """On how many of the tasks a difference rests.

    Empty if on all of them.

    >>> partly(["order", "word"], ["word"]), partly(["word"], ["word"])
    (' (on 1 of 2 tasks)', '')
    """
    count = sum(task in shared for task in tasks)
    if count == len(tasks):
        return ""
    return f" (on {count} of {plural(len(tasks), 'task')})"


def probability_text(share: float) -> str:
    """A probability estimated from draws, which cannot resolve 0 and 1.

    >>> probability_text(0.999), probability_text(0.001), probability_text(0.5)
    ('over 99 %', 'under 1 %', '50 %')
    """
    if share > 0.99:
        return "over 99 %"
    if share < 0.01:
        return "under 1 %"
    return percent(share)


def percent(share: float) -> str:
    """A share as a percentage, with one decimal below 10 %.

    >>> percent(0.2842), percent(0.0123), percent(0.0), percent(1.0)
    ('28 %', '1.2 %', '0 %', '100 %')
    """
    decimals = int(0 < share < 0.095)
    return f"{100 * share:.{decimals}f} %"


SI = ("", "k", "M", "G", "T", "P")


def si(value: float) -> str:
    """A large number in three digits with an SI prefix.

    >>> si(512), si(44_670_000), si(2.5e12)
    ('512', '44.7 M', '2.5 T')
    """
    exponent = min(5, math.floor(math.log10(max(1, value)) / 3))
    shown = float(f"{value / 1000**exponent:.3g}")
    return f"{shown:,.15g} {SI[exponent]}".strip()


def need_matplotlib() -> None:
    """Raise a `ConfigError` if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "Plots need matplotlib, which is not installed: pip install 'daskmetrics[plot]'."
        )
