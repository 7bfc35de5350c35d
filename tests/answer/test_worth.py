"""What each choice of a readout is worth; whether the choice of a search holds on fresh items."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daskmetrics.answer.worth import fresh_items, worths_of
from daskmetrics.domain.names import Arm
from daskmetrics.domain.outcomes import Difference, pack, unpack
from daskmetrics.domain.results import Scored
from daskmetrics.domain.scores import Scores
from daskmetrics.report.tables import fresh_table

TASKS = {"order": 1.0, "topics": 2.0}
N = 200  # items of a task
READOUTS = ("mean", "mean,256d", "last", "last,256d")
LOSS = {"last": 0.04, "256d": 0.01}


def arm(layer: int, readout: str) -> Arm:
    return Arm("m", "main", layer, readout)


def made(seed: int = 0, layers: int = 4) -> dict:
    """Scores of all arms: outcomes have what items and layers share, what a choice does to each
    item, and a loss.
    """
    rng = np.random.default_rng(seed)
    recorded: dict[Arm, dict] = {arm(i, name): {} for i in range(layers) for name in READOUTS}
    for task in TASKS:
        item = rng.normal(0.5, 0.3, N)
        hurt = {part: rng.normal(loss, loss, N) for part, loss in LOSS.items()}
        for candidate, by_task in recorded.items():
            lost = sum(hurt[part] for part in candidate.readout.split(",") if part in hurt)
            values = item + rng.normal(0, 0.02, N) - lost
            score = float(values.mean())
            stderr = float(values.std(ddof=1)) / math.sqrt(N)
            by_task[task] = Scored(score, stderr, outcomes=pack(values, score, task))
    return recorded


def naive(recorded, value: str, base: str) -> tuple[float, float, int]:
    """The same in plain loops: differences of all pairs item by item, their mean over the pairs that
    were scored on a task, then over tasks.
    """
    pairs, common = [], set()
    for one in recorded:
        parts = one.readout.split(",")
        if value in parts:
            others = [base if part == value else part for part in parts]
            pairs.append((one, arm(one.layer, ",".join(filter(None, others)))))
    mean = variance = 0.0
    for task, weight in TASKS.items():
        items, centre = np.zeros(N), 0.0
        scored = [pair for pair in pairs if all(task in recorded[arm] for arm in pair)]
        common.update(scored)
        for one, other in scored:
            ours, theirs = recorded[one][task], recorded[other][task]
            items += (unpack(ours.outcomes) - unpack(theirs.outcomes)) / len(scored)
            centre += (ours.score - theirs.score) / len(scored)
        mean += weight / 3 * centre
        variance += (weight / 3) ** 2 * items.var(ddof=1) / N
    return mean, math.sqrt(variance), len(common)


@pytest.mark.parametrize(("is_complete", "count"), [(True, 8), (False, 7)])
def test_a_choice_is_worth_what_plain_loops_give(is_complete, count):
    recorded = made()
    if not is_complete:
        recorded[arm(0, "last,256d")] = {}
        for name in READOUTS:
            del recorded[arm(1, name)]["topics"]
    for value, part, base in (("last", "last", "mean"), ("256", "256d", "")):
        worth = next(worth for worth in worths_of(recorded, TASKS) if worth.value == value)
        mean, stderr, pairs = naive(recorded, part, base)
        assert worth.difference.value == pytest.approx(mean, rel=1e-6, abs=1e-12)
        assert worth.difference.stderr == pytest.approx(stderr, rel=1e-6)
        assert worth.pairs == pairs == count and worth.difference.paired


def test_a_pair_differs_in_one_choice_from_the_plainest():
    mean = made(layers=1)[arm(0, "mean")]
    assert worths_of({arm(0, "mean"): mean, arm(0, "last,256d"): mean}, TASKS) == ()
    (worth,) = worths_of({arm(0, "mean"): mean, arm(0, "mean,256d"): mean}, TASKS)
    assert worth.difference.value == 0 < worth.difference.stderr < 0.01 and not worth.beyond
    scores = {arm(0, f"last,{width}d"): {"order": Scored(0.5, 0.1)} for width in (128, 256)}
    (worth,) = worths_of(scores, {"order": 1.0})
    assert (worth.value, worth.base) == ("128", "256")


CHOSEN, *OTHERS = ARMS = tuple(Arm("small", "step8", layer) for layer in range(4))
EQUAL = dict.fromkeys(("order", "package", "topics"), 1.0)
SPREAD = 0.01  # standard error of a score


def with_fresh(*fresh: float) -> tuple[Scores, Scores, dict[str, float]]:
    """Fresh scores of finalists on every task, the chosen arm first, and those of the search."""
    scores = {}
    for arm, score in zip(ARMS, fresh, strict=False):
        scores[arm] = dict.fromkeys(EQUAL, Scored(score, SPREAD))
    searched = {CHOSEN: dict.fromkeys(EQUAL, Scored(0.6, SPREAD))}
    tables = [Scores(by_arm, list(EQUAL)) for by_arm in (scores, searched)]
    return tables[0], tables[1], EQUAL


@pytest.mark.parametrize(
    ("fresh", "best", "holds"),
    [
        ((0.5, 0.4, 0.47), CHOSEN, True),  # the highest
        ((0.5, 0.505, 0.4), OTHERS[0], True),  # lower within the error
        ((0.5, 0.4, 0.54), OTHERS[1], False),  # lower beyond it
        ((0.5, 0.516), OTHERS[0], False),  # 1.96 standard errors are rare for one rival,
        ((0.5, 0.516, 0.4, 0.4), OTHERS[0], True),  # and not for the best of three
    ],
)
def test_a_choice_holds_unless_a_rival_is_clearly_higher(fresh, best, holds):
    found = fresh_items(*with_fresh(*fresh))
    assert (found.best, found.holds) == (best, holds)


def test_every_finalist_has_both_scores_and_its_distance():
    scores, searched, _ = with_fresh(0.5, 0.4, 0.3)
    scores = Scores({**scores, OTHERS[1]: {}}, list(EQUAL))
    fresh = fresh_items(scores, searched, EQUAL)
    chosen, other = fresh.finalists
    assert chosen.searched[0] == pytest.approx(0.6) and chosen.lead is other.searched is None
    assert chosen.fresh == pytest.approx((0.5, math.sqrt(3) * SPREAD / 3))
    error = pytest.approx(math.sqrt(2 * 3) * SPREAD / 3)
    assert other.lead == Difference(pytest.approx(0.1), error, paired=False)
    table = fresh_table(fresh, {})
    assert [row[0] for row in table.rows] == [str(CHOSEN), str(OTHERS[0])]
    assert fresh.unscored == (OTHERS[1],)
    assert any(str(OTHERS[1]) in note for note in table.notes)
    scores = Scores({**scores, CHOSEN: {}}, list(EQUAL))
    assert fresh_items(scores, searched, EQUAL) is None
