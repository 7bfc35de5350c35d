"""What each choice of a readout is worth: paired over arms that differ in it alone, with errors of
the shared items.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from daskmetrics.answer.worth import worths_of
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import pack, unpack
from daskmetrics.core.results import Scored

LAYERS, TASKS = range(4), {"order": 1.0, "topics": 2.0}
N = 200  # items of a task
READOUTS = [
    ",".join(filter(None, parts))
    for parts in product(("mean", "last"), ("", "mean1-3"), ("", "256d"))
]
LOSS = {"last": 0.04, "256d": 0.01, "mean1-3": 0.0}


def made(seed: int = 0, outcomes: bool = True, layers=LAYERS) -> dict:
    """Scores of all arms: outcomes have what items and layers share, what a choice does to each
    item, and a loss.
    """
    rng = np.random.default_rng(seed)
    recorded: dict[Arm, dict] = {
        Arm("m", "main", layer, name): {} for layer in layers for name in READOUTS
    }
    for task in TASKS:
        item, hurt = (
            rng.normal(0.5, 0.3, N),
            {part: rng.normal(loss, loss, N) for part, loss in LOSS.items()},
        )
        for arm in recorded:
            values = (
                item
                + rng.normal(0, 0.02, N)
                - sum(hurt[part] for part in arm.readout.split(",") if part in hurt)
            )
            score = float(values.mean())
            packed = pack(values, score, task) if outcomes else None
            stderr = float(values.std(ddof=1)) / math.sqrt(N)
            recorded[arm][task] = Scored(score, stderr, outcomes=packed)
    return recorded


def naive(recorded, value: str, base: str) -> tuple[float, float, int]:
    """The same in plain loops: differences of all pairs item by item, their mean over pairs, then
    over tasks.
    """
    apart = lambda name: name.replace(value, base).strip(",").replace(",,", ",")  # noqa: E731
    pairs = [
        (a, Arm("m", "main", a.layer, apart(a.readout)))
        for a in recorded
        if value in a.readout.split(",")
    ]
    mean = variance = 0.0
    for task, weight in TASKS.items():
        items = [0.0] * N
        for one, other in pairs:
            ours, theirs = (unpack(recorded[arm][task].outcomes) for arm in (one, other))
            items = [
                total + (a - b) / len(pairs)
                for total, a, b in zip(items, ours, theirs, strict=True)
            ]
        centre = sum(recorded[a][task].score - recorded[b][task].score for a, b in pairs) / len(
            pairs
        )
        middle = sum(items) / N
        spread = sum((each - middle) ** 2 for each in items) / (N - 1) / N
        mean += weight / 3 * centre
        variance += (weight / 3) ** 2 * spread
    return mean, math.sqrt(variance), len(pairs)


def worth_of(recorded, value):
    """What a choice is worth."""
    return next(worth for worth in worths_of(recorded, TASKS) if worth.value == value)


@pytest.mark.parametrize(("value", "base"), [("last", "mean"), ("mean1-3", "")])
def test_a_choice_is_worth_what_plain_loops_over_items_and_pairs_give(value, base):
    recorded = made()
    found = worth_of(recorded, value)
    mean, stderr, pairs = naive(recorded, value, base)
    assert (found.difference.value, found.difference.stderr) == pytest.approx(
        (mean, stderr), rel=1e-6, abs=1e-12
    )
    assert found.pairs == pairs == 16 and found.difference.paired


def test_what_loses_differs_from_what_does_nothing():
    found = {worth.value: worth for worth in worths_of(made(), TASKS)}
    assert {value: worth.beyond for value, worth in found.items()} == {
        "last": True,
        "256": True,
        "mean1-3": False,
    }
    assert found["last"].difference.value == pytest.approx(-0.04, abs=0.01)
    assert (found["mean1-3"].base, found["256"].base) == ("", "")


def test_the_stated_error_is_that_of_other_items():
    """Over many draws of items, differences scatter as the error says; it does not shrink with the
    number of pairs.
    """
    drawn = [worth_of(made(seed), "last") for seed in range(60)]
    scatter = np.std([each.difference.value for each in drawn], ddof=1)
    stated = np.mean([each.difference.stderr for each in drawn])
    assert 0.75 < stated / scatter < 1.3  # 60 draws know a deviation to 9 %
    independent = stated / math.sqrt(drawn[0].pairs)
    assert independent < scatter / 2


def test_more_layers_of_equal_outcomes_do_not_make_the_error_smaller():
    one, more = made(layers=[0]), {}
    for arm, scores in one.items():
        more |= {Arm("m", "main", layer, arm.readout): scores for layer in range(8)}
    for few, many in zip(worths_of(one, TASKS), worths_of(more, TASKS), strict=True):
        assert many.pairs == 8 * few.pairs
        assert many.difference.stderr == pytest.approx(few.difference.stderr)


def test_without_outcomes_errors_are_those_of_single_pairs():
    worth = worths_of(made(outcomes=False), TASKS)[0]
    assert not worth.difference.paired and not worth.beyond
    assert worth.difference.stderr == pytest.approx(
        math.sqrt(2) * 0.3 / math.sqrt(N) * math.sqrt(5) / 3, rel=0.2
    )


def test_only_tasks_on_which_both_arms_of_a_pair_were_scored_count():
    recorded = made(layers=[0, 1])
    for arm in recorded:
        if "last" in arm.readout and arm.layer == 1:
            del recorded[arm]["topics"]
    del (
        recorded[Arm("m", "main", 0, "last")]["order"],
        recorded[Arm("m", "main", 0, "last")]["topics"],
    )
    found = worth_of(recorded, "last")
    assert found.pairs == 7
    # topics: the pairs of layer 0 alone
    topics = {
        arm: {"topics": by_task["topics"]}
        for arm, by_task in recorded.items()
        if "topics" in by_task
    }
    order = {
        arm: {"order": by_task["order"]} for arm, by_task in recorded.items() if "order" in by_task
    }
    parts = [worth_of(part, "last").difference.value for part in (order, topics)]
    assert found.difference.value == pytest.approx((parts[0] + 2 * parts[1]) / 3)


def test_arms_that_differ_in_two_choices_are_no_pair():
    recorded = made(layers=[0])
    kept = {
        arm: recorded[arm]
        for arm in (Arm("m", "main", 0, "mean"), Arm("m", "main", 0, "last,mean1-3"))
    }
    assert worths_of(kept, TASKS) == ()
    assert worths_of({}, TASKS) == ()


def test_equal_outcomes_differ_by_nothing():
    recorded = made(layers=[0])
    recorded[Arm("m", "main", 0, "mean,mean1-3")] = recorded[Arm("m", "main", 0, "mean")]
    kept = {
        arm: by_task for arm, by_task in recorded.items() if arm.readout in ("mean", "mean,mean1-3")
    }
    (found,) = worths_of(kept, TASKS)
    assert (found.difference.value, found.difference.stderr, found.beyond) == (0, 0, False)


def test_the_base_is_the_choice_nearest_to_the_default():
    names = ("last,128d", "last,256d")
    scores = {Arm("m", "main", 0, name): {"order": Scored(0.5, 0.1)} for name in names}
    (found,) = worths_of(scores, {"order": 1.0})
    assert (found.value, found.base) == ("128", "256")
