"""Numbers, arms, labelled lines and templates as terminal, page and notebook show them."""

from __future__ import annotations

import base64
import math
import textwrap
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from daskmetrics.core._outcomes import Difference
from daskmetrics.core._readouts import Readout
from daskmetrics.core._table import printable
from daskmetrics.core._text import listed, plural
from daskmetrics.core.names import Arm, Checkpoint, step_of, training_order

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def template(name: str) -> Template:
    """A template of this folder; undefined names are errors, and texts are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("daskmetrics.report", ""),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    return environment.get_template(name)


WIDTH = 98  #: columns; with the comment sign of `best_text` they are 100
PHRASES = 4  #: of arms in words; the others are counted
FEW = 2  #: phrases with readouts
LABEL = 12  #: columns of the labels on the left
NO_REASON = "no reason was recorded"


def fact(label: str, text: str) -> list[str]:
    """A label and its text, wrapped beside it; paths are not broken.

    >>> fact("run", "demo")
    ['run         demo']
    """
    label = printable(label)
    first = f"{label:<{LABEL}}" if len(label) < LABEL else f"{label}: "
    return textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


_POOLED = {
    "": "the pooling of the protocol",
    "as_shipped": "pooled as shipped",
    "mean": "mean",
    "last": "last token",
    "cls": "first token",
    "weighted": "weighted mean",
    "max": "maximum",
}
_TOGETHER = {"mean": "mean of layers {}", "concat": "layers {} one after the other"}


def choices(arm: Arm) -> dict[str, str]:
    """What the readout of an arm has of each choice, in words.

    >>> choices(Arm("m", "main", 6, "last,mean3-6,pca64,int8"))["layers"]
    'mean of layers 3 to 6'
    """
    read = Readout.parse(arm.readout)
    span, own = list(map(str, range(arm.layer + 1))), list(map(str, read.together))
    what = "principal components" if read.principal else "dimensions"
    return {
        "pooling": _POOLED[read.pooling],
        "layers": _TOGETHER[read.join].format(_ranges(span, own)) if own else "one layer",
        "dimensions": f"{read.kept:,} {what}" if read.kept else "all dimensions",
        "whitening": "whitened" if read.whitening else "not whitened",
        "storage": read.storage,
    }


def readout_words(arms: Sequence[Arm], among: Iterable[Arm]) -> str:
    """What the readouts of arms have in common that others of them lack, in words; empty if nothing is to be said."""
    others, own = ([choices(each) for each in {arm.readout: arm for arm in some}.values()] for some in (among, arms))
    usual = choices(Arm("", "", 0))
    parts = [
        next(iter(values))
        for kind in usual
        if len(values := {each[kind] for each in own}) == 1
        and values != {usual[kind]}
        and len({each[kind] for each in others}) > 1
    ]
    return ", ".join(parts)


def place(arm: Arm, among: Iterable[Arm]) -> str:
    """An arm in words, with its checkpoint if its model has several of them, and with its readout if there are several.

    >>> arms = [Arm("tiny", "step8", 3), Arm("tiny", "step16", 3), Arm("minilm", "main", 6)]
    >>> place(arms[0], arms), place(arms[2], arms)
    ('layer 3 of tiny at step 8', 'layer 6 of minilm')
    >>> read = [Arm("minilm", "main", 3, "mean"), Arm("minilm", "main", 3, "last,256d,int8")]
    >>> place(read[1], read)
    'layer 3 of minilm, last token, 256 dimensions, int8'
    """
    among = list(among)
    step, name = arm.checkpoint.step, f"layer {arm.layer} of {arm.model}"
    if {each.revision for each in among if each.model == arm.model} - {arm.revision}:
        name = f"{name} at {arm.revision if step is None else f'step {step:,}'}"
    return ", ".join(filter(None, (name, arm.readout and readout_words([arm], among))))


def in_words(arms: Sequence[Arm], among: Iterable[Arm]) -> str:
    """Arms in words: ranges are compressed, and models, checkpoints and readouts named only if there are several.

    >>> layers = [Arm("m", "main", layer) for layer in range(7)]
    >>> in_words(layers[5:], layers), in_words([*layers[:4], layers[6]], layers)
    ('layers 5 and 6', 'layers 0 to 3 and 6')
    >>> steps = [Arm(model, f"step{step}", 3) for model in "ab" for step in (1, 2, 4)]
    >>> in_words(steps[:3], steps), in_words([*steps[:2], steps[5]], steps)
    ('layer 3 of a at steps 1 to 4', 'layer 3 of a at steps 1 and 2 and layer 3 of b at step 4')
    >>> read = [Arm("m", "main", layer, name) for layer in (5, 6) for name in ("mean", "last", "last,int8")]
    >>> in_words(read[1:2], read), in_words([*read[1:3], *read[4:]], read)
    ('layer 5 (last token)', '2 readouts of layers 5 and 6 (last token)')
    """
    among = list(among)
    known: dict[str, set[str]] = {}
    for arm in among:
        known.setdefault(arm.model, set()).add(arm.revision)
    groups = _alike(arms)
    if len(groups) > FEW and any(arm.readout for arm in among):
        groups = _alike(arms, whole=True)
    phrases = []
    for (model, own, _), members in groups.items():
        order = training_order(known[model])
        of = f" of {model}" if len(known) > 1 else ""
        at = f" at {_steps(order, {arm.revision for arm in members})}" if len(order) > 1 else ""
        span = list(map(str, range(own[-1] + 1)))
        layers = f"layer{'' if len(own) == 1 else 's'} {_ranges(span, set(map(str, own)))}{of}{at}"
        phrases.append(_read(layers, members, among))
    if len(phrases) > PHRASES + 1:
        counted = sum(map(len, list(groups.values())[PHRASES:]))
        phrases[PHRASES:] = [plural(counted, "other arm")]
    return listed(phrases) if len(phrases) < 3 else f"{', '.join(phrases[:-1])}, and {phrases[-1]}"


def _alike(arms: Iterable[Arm], whole: bool = False) -> dict[tuple[str, tuple[int, ...], tuple[str, ...]], list[Arm]]:
    """Arms by model, the layers that they share in some checkpoints, and the readouts that they share in these.

    With ``whole``, arms of a checkpoint belong together whatever readouts each layer has.
    """
    rows: dict[Checkpoint, dict[int, list[str]]] = {}
    for arm in sorted(arms):
        rows.setdefault(arm.checkpoint, {}).setdefault(arm.layer, []).append(arm.readout)
    groups: dict[tuple[str, tuple[int, ...], tuple[str, ...]], list[Arm]] = {}
    for checkpoint, by_layer in rows.items():
        shared: dict[tuple[str, ...], list[int]] = {}
        for layer, readouts in by_layer.items():
            shared.setdefault(() if whole else tuple(readouts), []).append(layer)
        for alike, layers in shared.items():
            model, revision = checkpoint.model, checkpoint.revision
            members = [Arm(model, revision, layer, name) for layer in layers for name in by_layer[layer]]
            groups.setdefault((model, tuple(layers), alike), []).extend(members)
    return groups


def _read(layers: str, arms: Sequence[Arm], among: Sequence[Arm]) -> str:
    """Layers in words with the readouts of their arms: how many there are, and what they have in common."""
    readouts = {arm.readout for arm in arms}
    if readouts == {""}:
        return layers
    places = {(arm.checkpoint, arm.layer) for arm in arms}
    count = plural(len(arms), "arm") if len(arms) < len(places) * len(readouts) else plural(len(readouts), "readout")
    said = readout_words(arms, among)
    return f"{count + ' of ' if len(readouts) > 1 else ''}{layers}{f' ({said})' if said else ''}"


def _steps(order: Sequence[str], chosen: Container[str]) -> str:
    """Revisions in words, as steps if all of them are."""
    names = [name for name in order if name in chosen]
    if any(step_of(name) is None for name in names):
        return _ranges(order, names)
    short = {name: name if (step := step_of(name)) is None else str(step) for name in order}
    return f"step{'' if len(names) == 1 else 's'} {_ranges(list(short.values()), [short[name] for name in names])}"


def _ranges(order: Sequence[str], chosen: Container[str]) -> str:
    """The chosen of some ordered names; three or more that follow each other are a range.

    >>> _ranges("abcdefg", "abcfg")
    'a to c, f and g'
    """
    runs: list[list[str]] = [[]]
    for name in order:
        if name in chosen:
            runs[-1].append(name)
        elif runs[-1]:
            runs.append([])
    return listed([part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)])


def number(value: float | None, stderr: float | None = None, sign: bool = False) -> str:
    """A score with its standard error.

    >>> number(0.5, 0.01), number(0.02, 0.01, sign=True), number(None)
    ('0.500 ± 0.010', '+0.020 ± 0.010', 'not measured')
    """
    if value is None:
        return "not measured"
    text = f"{value:{'+' if sign else ''}.3f}"
    return text if stderr is None else f"{text} ± {stderr:.3f}"


def signed(correlation: float) -> str:
    """A correlation with its sign.

    >>> signed(0.5), signed(-0.25)
    ('+0.50', '−0.25')
    """
    return f"{correlation:+.2f}".replace("-", "\N{MINUS SIGN}")


def scored(recorded: Mapping[str, Any] | None, without: str = "not measured") -> str:
    """The score of a cell with its standard error, as a journal or a result holds it.

    >>> scored({"score": 0.5, "stderr": 0.01}), scored(None)
    ('0.500 ± 0.010', 'not measured')
    """
    return number(recorded["score"], recorded["stderr"]) if recorded else without


def over(weights: Collection[float]) -> str:
    """What a mean score is the mean of, given the weights of its tasks.

    >>> over([1.0, 1.0]), over([3.0]), over([1.0, 2.0])
    ('mean of 2 tasks', 'mean of 1 task', 'weighted mean of 2 tasks')
    """
    return f"{'weighted ' if len(set(weights)) > 1 else ''}mean of {plural(len(weights), 'task')}"


UNPAIRED = "* not paired: outcomes of items are missing, so the error is that of two independent scores"


def apart(difference: Difference | None, mark: str = " (unpaired)") -> str:
    """A difference with its standard error, and a mark if the error is not paired.

    >>> apart(Difference(0.02, 0.01, paired=True)), apart(Difference(0.02, 0.01, paired=False))
    ('+0.020 ± 0.010', '+0.020 ± 0.010 (unpaired)')
    """
    if difference is None:
        return ""
    return number(difference.value, difference.stderr, sign=True) + ("" if difference.paired else mark)


def size(difference: Difference) -> str:
    """How large a difference is, whatever its sign.

    >>> size(Difference(-0.02, 0.01, paired=False))
    '0.020 ± 0.010 (unpaired)'
    """
    return number(abs(difference.value), difference.stderr) + ("" if difference.paired else " (unpaired)")


def unpaired(differences: Iterable[Difference | None]) -> tuple[str, ...]:
    """The note below a table in which some errors of differences are not paired."""
    return () if all(each.paired for each in differences if each) else (UNPAIRED,)


def percent(share: float) -> str:
    """A share as a percentage, with one decimal below 10 %.

    >>> percent(0.2842), percent(0.0123), percent(0.0), percent(1.0)
    ('28 %', '1.2 %', '0 %', '100 %')
    """
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.095 else f"{share:.0%}".replace("%", " %")


SI = ("", "k", "M", "G", "T", "P")


def si(value: float) -> str:
    """A large number in three digits, with a prefix of the SI.

    >>> si(512), si(44_670_000), si(2.5e12)
    ('512', '44.7 M', '2.5 T')
    """
    exponent = min(5, max(0, math.floor(math.log10(value) / 3))) if value >= 1 else 0
    shown = float(f"{value / 1000**exponent:.3g}")
    return f"{shown:,.15g} {SI[exponent]}".strip()


def probability(share: float) -> str:
    """A probability estimated from draws, which cannot resolve 0 and 1.

    >>> probability(0.41), probability(1.0), probability(0.001)
    ('41 %', 'over 99 %', 'under 1 %')
    """
    return "over 99 %" if share > 0.99 else "under 1 %" if share < 0.01 else percent(share)


def card(title: str, rows: Mapping[str, str], code: str = "") -> str:
    """A small HTML table for a notebook, in the colours of its theme."""
    return template("card.html").render(title=title, rows=rows, code=code)
