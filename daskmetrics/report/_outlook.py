"""Why a search ended, what more would buy, what metrics contributed, and why the answer changed: as sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from daskmetrics.core._events import Event, SearchEnded, succeeded
from daskmetrics.core._outcomes import Difference, mean_difference
from daskmetrics.core._text import listed, plural
from daskmetrics.core.names import Arm, Cell
from daskmetrics.report._format import apart, number, percent, probability

SHOWN = 3  #: gains that are stated
HARDLY = 1e-4  #: of the score; a smaller gain is not worth a command
SURE = 0.9  #: stated probability from which on a search that ended by itself is called sure
MOST = 4  #: scores named as the reason of a change


def outlook(
    result: SearchEnded,
    entries: Sequence[Event],
    search: Mapping[str, Any],
    differences: Callable[[Arm, Arm], Mapping[str, Difference]],
    unseen: Sequence[str] = (),
) -> Iterator[tuple[str, str]]:
    """Labels and sentences about the end of a search, given its journal, its configuration and how two arms differ.

    ``unseen`` names the models without a score, about which the search knows nothing.
    """
    if result.outlook:
        yield "ended", _ending(result, search)
        yield "more", _more(result, unseen)
    if result.without_metrics:
        yield "metrics", _metrics(result)
    earlier, since = earlier_search(entries, result)
    if earlier and since:
        apart = differences(result.best_arm, earlier.best_arm)
        yield "changed", changed(earlier, since, result, mean_difference(list(apart.values())))


def interrupted(decisions: int) -> str:
    """The same for a search that nothing drives."""
    return f"The search was stopped, by hand or with its process, after {plural(decisions, 'decision')}."


def _ending(result: SearchEnded, search: Mapping[str, Any]) -> str:
    after, policy = f"{percent(result.spent / result.exhaustive)} of the exhaustive cost", search["policy"]
    within = f"within {percent(result.within)} of the best"
    match result.outlook["ending"]:
        case "sure":
            begin = "Sure enough" if result.probability_within >= SURE else "Nothing left is worth its cost"
            return f"{begin} after {after}: the policy {policy} found no cell that may change the answer."
        case "confidence":
            return f"The required confidence, {percent(search['confidence'])} to be {within}, came after {after}."
        case "budget":
            return f"The budget was spent: no cell that the policy {policy} wants is affordable after {after}."
        case "cells":
            return f"The largest number of cells, {search['cells']:,}, was reached after {after}."
        case "complete":
            return "Nothing was left to score: the search has tried every cell."
    return f"The limit of {search['wall_hours']:g} hours was reached after {after}."


def _more(result: SearchEnded, unseen: Sequence[str]) -> str:
    if unseen:
        return f"Not known: {listed(unseen)} may be better by any amount, since none of its scores could be computed."
    gains, cost = result.outlook["gains"], "of the exhaustive cost"
    text = (
        f"The best arm, whichever it is, is expected to be {_amount(result, result.expected_loss)} better than the "
        f"recommended one{_unit(result)}."
    )
    if not gains:
        return f"{text} No cell is left that could tell; only the errors of the scores are left."
    if max(gain["value"] for gain in gains[:SHOWN]) < HARDLY * result.score_unit:
        return f"{text} More scores are expected to gain less than 0.01 % of the score for 10 % {cost}."
    first, *others = gains[:SHOWN]
    part = percent(first["share"]) if first["share"] >= 0.001 else f"{100 * first['share']:.1g} %"
    more = f"A further {part} {cost} ({plural(first['cells'], 'cell')})"
    parts = [f"{more} is expected to gain {_amount(result, first['value'])}"]
    parts += [f"the next {percent(gain['share'])} {_amount(result, gain['value'])}" for gain in others]
    share = min(1.0, math.ceil(100 * (result.spent / result.exhaustive + first["share"])) / 100)
    return f"{text} {', '.join(parts)}. To spend it, run the same command with --budget {share:g} --spend {share:g}."


def _unit(result: SearchEnded) -> str:
    return "" if result.reward == "mean" else f", in units of the reward {result.reward}"


def _amount(result: SearchEnded, value: float) -> str:
    """An amount of the reward, and as a share of the recommended arm's score."""
    share = value / result.score_unit if result.score_unit else 0.0
    if share > 1:
        return f"{value:.2g} (more than the score: there are too few scores to say)"
    return "less than 0.01 % of the score" if share < HARDLY else f"{value:.2g} ({100 * share:.2g} % of the score)"


def _metrics(result: SearchEnded) -> str:
    """What the same scores would say without the label-free metrics as features."""
    without, arm = result.without_metrics, Arm(**result.without_metrics["arm"])
    answer = "the same arm" if arm == result.best_arm else f"{arm} instead"
    change = 1 - without["error_with"] / without["error"] if without["error"] else 0.0
    verb = "lowered" if change > 0 else "raised"
    effect = f"Metrics {verb} this error by {percent(abs(change))}." if abs(change) >= 0.005 else ""
    sure = probability(without["probability_within"]), probability(result.probability_within)
    return (
        f"Without them the same scores recommend {answer}, within {percent(result.within)} of the best with "
        f"{sure[0]} probability ({sure[1]} with them). A score is predicted from all others with an error of "
        f"{without['error']:.3g} without and {without['error_with']:.3g} with them{_unit(result)}. "
        f"{effect} The search chose its cells with them."
    )


def earlier_search(
    entries: Sequence[Event], result: SearchEnded
) -> tuple[SearchEnded, Sequence[Event]] | tuple[None, None]:
    """The search before this one, if it recommended another arm, and the entries of the journal between them."""
    ends = [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, SearchEnded)]
    now = max(i for i, entry in ends if entry.key == result.key)
    for i, earlier in reversed(ends):
        if i < now:
            return (earlier, entries[i:now]) if earlier.best["arm"] != result.best["arm"] else (None, None)
    return None, None


def changed(earlier: SearchEnded, since: Sequence[Event], result: SearchEnded, gain: Difference | None) -> str:
    """Why the recommendation differs from that of an earlier search: what the new scores say of the two arms.

    ``gain`` is the difference of their mean scores on the tasks on which both were scored.
    """
    old, new = earlier.best_arm, result.best_arm
    spent = percent(earlier.spent / earlier.exhaustive)
    text = f"An earlier search of this run, with {spent} of the exhaustive cost, recommended {old}."
    if earlier.reward != result.reward:
        text += f" It compared arms by the reward {earlier.reward}, this one by {result.reward}."
    cells = [(Cell.parse(record.name), record.value["score"]) for record in succeeded(since, "score")]
    theirs = [f"{number(score)} of {cell}" for cell, score in cells if cell.arm in (old, new)]
    text += f" {plural(len(cells), 'score')} {'is' if len(cells) == 1 else 'are'} new"
    if theirs:
        rest = f" and {len(theirs) - MOST} more" if len(theirs) > MOST else ""
        text += f", among them {', '.join(theirs[:MOST])}{rest}"
    elif cells:
        text += ", of neighbours of the two arms and not of them"
    expected = [each for arm in (old, new) if (each := _moved(arm, earlier, result))]
    text += f". {' '.join(expected)}" if expected and earlier.reward == result.reward else "."
    return f"{text} Where both were scored, the arm recommended now is ahead by {apart(gain)}." if gain else text


def _moved(arm: Arm, earlier: SearchEnded, result: SearchEnded) -> str:
    """How an arm's expected objective changed; empty if it is not among the arms that both searches list."""
    before, now = (
        next((each["value"] for each in (end.best, end.default, *end.top) if Arm(**each["arm"]) == arm), None)
        for end in (earlier, result)
    )
    if before is None or now is None:
        return ""
    return f"The expected objective of {arm} went from {number(before)} to {number(now)}."
