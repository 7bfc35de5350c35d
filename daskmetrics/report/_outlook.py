"""Why a search ended, and why the answer changed: as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from daskmetrics.core.events import Event, SearchEnded, scored
from daskmetrics.core.names import Arm, Cell
from daskmetrics.core.outcomes import Difference, mean_difference
from daskmetrics.core.text import plural
from daskmetrics.report._format import apart, number, percent

SURE = 0.9  #: stated probability from which on a search that ended by itself is called sure
MOST = 4  #: scores named as the reason of a change


def outlook(
    result: SearchEnded,
    entries: Sequence[Event],
    search: Mapping[str, Any],
    differences: Callable[[Arm, Arm], Mapping[str, Difference]],
) -> Iterator[tuple[str, str]]:
    """Labels and sentences about the end of a search, given its journal, its configuration and how
    two arms differ.
    """
    if result.ending:
        yield "ended", _ending(result, search)
    earlier, since = earlier_search(entries, result)
    if earlier and since:
        apart = differences(result.best_arm, earlier.best_arm)
        yield "changed", changed(earlier, since, result, mean_difference(list(apart.values())))


def interrupted(decisions: int) -> str:
    """The same for a search that nothing drives."""
    return f"The search was stopped, by hand or with its process, after {plural(decisions, 'decision')}."


def _ending(result: SearchEnded, search: Mapping[str, Any]) -> str:
    after, policy = (
        f"{percent(result.spent / result.exhaustive)} of the exhaustive cost",
        search["policy"],
    )
    within = f"within {percent(result.within)} of the best"
    match result.ending:
        case "sure":
            begin = (
                "Sure enough"
                if result.probability_within >= SURE
                else "Nothing left is worth its cost"
            )
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


def earlier_search(
    entries: Sequence[Event], result: SearchEnded
) -> tuple[SearchEnded, Sequence[Event]] | tuple[None, None]:
    """The search before this one, if it recommended another arm, and the entries of the journal
    between them.
    """
    ends = [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, SearchEnded)]
    now = max(i for i, entry in ends if entry.key == result.key)
    for i, earlier in reversed(ends):
        if i < now:
            return (
                (earlier, entries[i:now])
                if earlier.best["arm"] != result.best["arm"]
                else (None, None)
            )
    return None, None


def changed(
    earlier: SearchEnded, since: Sequence[Event], result: SearchEnded, gain: Difference | None
) -> str:
    """Why the recommendation differs from that of an earlier search: what the new scores say of the
    two arms.

    ``gain`` is the difference of their mean scores on the tasks on which both were scored.
    """
    old, new = earlier.best_arm, result.best_arm
    spent = percent(earlier.spent / earlier.exhaustive)
    text = f"An earlier search of this run, with {spent} of the exhaustive cost, recommended {old}."
    if earlier.reward != result.reward:
        text += f" It compared arms by the reward {earlier.reward}, this one by {result.reward}."
    cells = [(Cell.parse(record.name), result.score) for record, result in scored(since)]
    theirs = [f"{number(score)} of {cell}" for cell, score in cells if cell.arm in (old, new)]
    text += f" {plural(len(cells), 'score')} {'is' if len(cells) == 1 else 'are'} new"
    if theirs:
        rest = f" and {len(theirs) - MOST} more" if len(theirs) > MOST else ""
        text += f", among them {', '.join(theirs[:MOST])}{rest}"
    elif cells:
        text += ", of neighbours of the two arms and not of them"
    expected = [each for arm in (old, new) if (each := _moved(arm, earlier, result))]
    text += f". {' '.join(expected)}" if expected and earlier.reward == result.reward else "."
    return (
        f"{text} Where both were scored, the arm recommended now is ahead by {apart(gain)}."
        if gain
        else text
    )


def _moved(arm: Arm, earlier: SearchEnded, result: SearchEnded) -> str:
    """How an arm's expected objective changed; empty if it is not among the arms that both searches
    list.
    """
    before, now = (
        next(
            (
                each["value"]
                for each in (end.best, end.default, *end.top)
                if Arm(**each["arm"]) == arm
            ),
            None,
        )
        for end in (earlier, result)
    )
    if before is None or now is None:
        return ""
    return f"The expected objective of {arm} went from {number(before)} to {number(now)}."
