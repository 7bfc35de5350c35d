"""The answer of a run, line by line: what to use, what it gains, how sure that is, what it cost."""

from __future__ import annotations

from shlex import quote

from daskmetrics.answer.answer import Answer, is_guess
from daskmetrics.core.table import printable
from daskmetrics.core.text import listed, plural, score_text
from daskmetrics.domain.names import Arm
from daskmetrics.report._format import (
    Line,
    apart,
    candidate,
    gain_text,
    headline,
    measured,
    partly,
    percent,
    saving,
)

MOST_MODELS = 2  # of other models that a line names
LONGEST = 38  # characters shown of a reason or a warning


def answer_lines(answer: Answer) -> list[Line]:
    """What to use, why, and what to do next."""
    save = f"daskmetrics best {_folder(answer)} --save my-encoder"
    if answer.encoded_by:
        save = ""
    texts = {
        "Use": use(answer),
        "Best of": best_of(answer),
        "Gain": gain(answer),
        "Sure": sure(answer),
        "Cheaper": cheaper(answer),
        "Others": others(answer),
        "Per task": per_task(answer),
        "Fresh": fresh(answer),
        "Check": check(answer),
        "Cost": cost(answer),
        "Vectors": answer.encoded_by,
        "Save": save,
        "Decide": decide(answer),
    }
    return [Line(label, text) for label, text in texts.items() if text]


def named(answer: Answer, arm: Arm) -> str:
    """A candidate in words, with the name that its layer has in the answer."""
    return candidate(arm, answer.layer_names)


def use(answer: Answer) -> str:
    """The best candidate and its score."""
    best = named(answer, answer.best.arm)
    weights = answer.weights
    if not answer.confirmed:
        scored = len(weights.keys() & answer.best.scores)
        return f"{best}: the best so far, scored on {scored} of {plural(len(weights), 'task')}"
    score = measured(answer.tasks, weights, answer.best.score, answer.best.stderr)
    tied = len(answer.verdict.overall.tied) if answer.is_tie else 1
    cheapest = ""
    if answer.cheapest:
        cheapest = named(answer, answer.cheapest.arm)
    return headline(best, score, tied, cheapest, is_guess(answer.over_floor))


def best_of(answer: Answer) -> str:
    """How many candidates were compared, and which models were not."""
    planned = plural(answer.candidates, "candidate")
    tested = answer.verdict.overall.tested
    if tested == answer.candidates:
        compared = f"all {planned}"
    elif tested:
        compared = f"the {tested:,} scored on every task, of {planned}"
    elif any(standing.best for standing in answer.verdict.models):
        compared = (
            "those with a score, by estimate; the candidates scored on every task are unlikely to be"
            " as good (below 1 %)"
        )
    else:
        compared = f"those with a score, by estimate; none of {planned} has one on every task"
    if answer.unscored_models:
        compared += f"; no layer of {listed(answer.unscored_models)} has a score"
    return compared


def gain(answer: Answer) -> str:
    """How far the best is above what one takes without search."""
    best, default = answer.best.arm, answer.default.arm
    if best == default:
        return "none: it is what one would take without a search"
    own = next(standing for standing in answer.verdict.models if standing.model == best.model)
    is_last = default == own.last and own.is_last
    default_name = named(answer, default)
    if is_last:
        default_name = "its last layer"
        if default.revision != best.revision:
            default_name = "the last layer of its last checkpoint"
    if not answer.difference:
        return f"not known: no task was scored with it and with {default_name}"
    overall = answer.verdict.overall
    compared = overall.tested if default in overall.tied + overall.worse else 0
    text = gain_text(answer.difference, default_name, answer.relation, compared)
    text += partly(answer.weights, answer.differences)
    models = answer.verdict.models
    others = [(other, other.behind) for other in models if other != own and other.behind]
    for other, behind in others[:MOST_MODELS]:
        name = named(answer, other.last)
        if is_last and other.is_last:
            name = f"that of {other.model}"
        text += f"; {apart(behind)} over {name}"
    return text


def sure(answer: Answer) -> str:
    """What may be lost with it, and the close others."""
    overall = answer.verdict.overall
    text = f"expected loss {score_text(answer.expected_loss)}"
    if answer.most_lost is None:
        text = f"too few scores to say what it may lose; {text}"
    else:
        most = score_text(answer.most_lost)
        text = f"no other of {answer.candidates:,} is more than {most} better (95 %), {text}"
    if answer.sureness:
        text = f"{answer.sureness}: {text}"
    if overall.tested > 1 and not answer.is_tie:  # the first line counts those of a tie
        tied = len(overall.tied) - 1 or "none"
        others = plural(overall.tested - 1, "fully scored other")
        text += f"; {tied} of {others} within its error"
    if overall.open:
        text += f"; {overall.open:,} with too few scores to tell"
    return text


def cheaper(answer: Answer) -> str:
    """A simpler candidate and what it loses; empty without one, or if all only guess."""
    simpler = answer.cheapest
    if not simpler or is_guess(answer.over_floor):
        return ""
    if answer.is_tie:  # the first line has its name
        return saving(simpler)
    return f"{named(answer, simpler.arm)}: {saving(simpler)}"


def others(answer: Answer) -> str:
    """The best candidates of a few other models."""
    shown = [
        f"{named(answer, model.best)}: {score_text(*model.score)}"
        for model in answer.verdict.models
        if model.best and model.score and model.model != answer.best.arm.model
    ]
    if hidden := shown[MOST_MODELS:]:
        shown[MOST_MODELS:] = [f"{len(hidden)} more"]
    return "; ".join(shown)


def per_task(answer: Answer) -> str:
    """What a choice for each task would gain.

    Empty where the best is as good.
    """
    if not answer.per_task or not answer.verdict.disagreeing:
        return ""
    return f"choosing for each task would gain another {apart(answer.per_task)}"


def fresh(answer: Answer) -> str:
    """Whether the choice holds on items that were kept back."""
    if not answer.fresh:
        return ""
    chosen, *rivals = answer.fresh.finalists
    if not rivals:
        return "no other candidate was scored on the items that were kept back"
    if answer.fresh.best == chosen.arm:
        return "it is the best on the items that were kept back, too"
    relation = "within" if answer.fresh.holds else "beyond"
    higher = named(answer, answer.fresh.best)
    return f"on the items that were kept back {higher} is higher, {relation} the error"


def check(answer: Answer) -> str:
    """What is missing or doubtful, and where it is listed."""
    # a metric that a layer cannot have is no failure, but a score is
    failed = [
        failure for failure in answer.failures if failure.status != "nan" or failure.kind == "score"
    ]
    failed.sort(key=lambda failure: failure.status == "nan")
    found = []
    if failed:
        missing = plural(sum(failure.count for failure in failed), "value")
        found.append(f"{missing} missing ({_beginning(failed[0].reason)})")
    if answer.warnings:
        warned = plural(len(answer.warnings), "warning")
        found.append(f"{warned} ({_beginning(answer.warnings[0])})")
    if not found:
        return ""
    return f"{'; '.join(found)}: daskmetrics status {_folder(answer)}"


def cost(answer: Answer) -> str:
    """How many scores were paid for, of all."""
    planned = plural(answer.planned, "score")
    if answer.scored >= answer.planned:
        return f"all {planned}"
    share = percent(answer.cost.share or 0)
    return f"{answer.scored:,} of {planned}, about {share} of the time of all"


def decide(answer: Answer) -> str:
    """What would decide between the best; empty if decided."""
    overall = answer.verdict.overall
    if overall.open and answer.ending == "budget":
        folder = _folder(answer)
        return f"daskmetrics run {folder}/config.yaml --folder {folder} --budget 1"
    if not overall.items_to_decide:
        return ""
    times = float(f"{overall.items_to_decide:.2g}")
    text = f"about {times:,.15g} times as many items, if the difference stays the same"
    if answer.more_search_is_idle:
        text += "; more search would not"
    return text


def _folder(answer: Answer) -> str:
    return quote(str(answer.folder))


def _beginning(text: str) -> str:
    text = printable(text)
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST - 4].rsplit(" ", 1)[0] + " ..."
