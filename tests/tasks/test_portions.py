"""Parts of a task's items."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks import resolve
from daskmetrics.tasks._stdlib import StdlibTask
from daskmetrics.tasks.examples import Examples, Portion, divide, kept_back

TEXTS = tuple(f"text {i}" for i in range(60))
LABELS = tuple(i % 3 for i in range(60))
SEARCHED, FRESH = (Portion(0.3, fresh) for fresh in (False, True))


def items(kind, examples, portion, name="task"):
    """A part, and its texts without those that only fit a probe."""
    part = StdlibTask(name, kind, "", lambda: examples, portion=portion).examples()
    return part, set(part.texts[part.fitted :])


@pytest.fixture(scope="module")
def built_in():
    tasks = resolve(["stdlib:all"])
    return tasks, *divide(tasks, 0.3)


@pytest.mark.parametrize("kind", ["classification", "clustering"])
def test_each_label_keeps_back_the_share(kind):
    parts = [items(kind, Examples(TEXTS, LABELS), portion) for portion in (SEARCHED, FRESH)]
    labels = [part.labels[part.fitted :] for part, _ in parts]
    assert [[of_part.count(label) for label in range(3)] for of_part in labels] == [
        [14] * 3,
        [6] * 3,
    ]
    assert parts[0][1] | parts[1][1] == set(TEXTS)


def test_the_order_of_rows_and_other_rows_change_nothing_and_the_name_does():
    rows = list(zip(TEXTS, LABELS, strict=True))
    random.Random(0).shuffle(rows)
    shuffled = Examples(*map(tuple, zip(*rows, strict=True)))
    _, plain = items("clustering", Examples(TEXTS, LABELS), FRESH)
    assert items("clustering", shuffled, FRESH)[1] == plain
    assert items("clustering", Examples(TEXTS, LABELS), FRESH, name="another")[1] != plain


def test_copies_of_an_item_stay_together():
    examples = Examples(TEXTS + TEXTS, LABELS + LABELS)
    searched, fresh = (
        items("classification", examples, portion)[1] for portion in (SEARCHED, FRESH)
    )
    assert searched | fresh == set(TEXTS) and not searched & fresh


def test_three_items_of_a_rare_label_remain_in_the_search():
    labels = np.array([0] * 50 + [1] * 4 + [2] * 3)
    fresh = kept_back([f"{i:02}" for i in range(57)], labels, 0.5)
    assert [int(fresh[labels == label].sum()) for label in range(3)] == [25, 1, 0]


def test_a_probe_is_fitted_to_the_items_of_the_search_and_tested_on_the_others(built_in):
    """What a probe can only know from a test text, it does not know."""
    _, searched, fresh = ({task.name: task for task in tasks} for tasks in built_in)
    for name in ("stdlib:package", "stdlib:order"):
        whole = fresh[name].examples()
        n = len(whole.texts) // (2 if name == "stdlib:order" else 1)
        assert (
            whole.fitted == len(searched[name].texts()) * n // len(whole.texts) > n - whole.fitted
        )
        random_vectors = np.random.default_rng(0).normal(size=(len(whole.texts), 8))
        score = fresh[name].evaluate(random_vectors, seed=1)
        assert score.n == n - whole.fitted == len(score.outcomes)
        assert score.value < 0.5 + 3 * score.stderr
    labels = np.array(fresh["stdlib:package"].examples().labels)
    perfect = fresh["stdlib:package"].evaluate(np.eye(12)[labels], seed=1)
    assert perfect.value == 1.0
    misled = np.eye(12)[labels]
    # all test texts look like the first class
    misled[fresh["stdlib:package"].examples().fitted :] = np.eye(12)[0]
    assert fresh["stdlib:package"].evaluate(misled, seed=1).value == pytest.approx(1 / 12)


def test_documents_are_candidates_in_both_parts_and_queries_in_one(built_in):
    whole, searched, fresh = ({task.name: task.examples() for task in tasks} for tasks in built_in)
    every = whole["stdlib:candidates"]
    for name, documents in (("stdlib:retrieval", every.queries), ("stdlib:candidates", None)):
        queries = [set(part[name].texts[: part[name].queries]) for part in (searched, fresh)]
        assert not queries[0] & queries[1] and sum(map(len, queries)) == every.queries > 200
        for part in (searched[name], fresh[name]):
            assert documents in (None, len(part.texts) - part.queries)
            assert all(query < part.queries for query, _, _ in part.judgements)
    pairs = {(every.texts[q], every.texts[every.queries + d], r) for q, d, r in every.judgements}
    for part in (searched["stdlib:candidates"], fresh["stdlib:candidates"]):
        assert {
            (part.texts[q], part.texts[part.queries + d], r) for q, d, r in part.judgements
        } < pairs


def test_the_two_parts_average_to_the_whole_where_a_score_is_a_mean_over_items(built_in):
    whole, searched, fresh = ({task.name: task for task in tasks} for tasks in built_in)
    vectors = dict(zip(*_texts_and_vectors(whole["stdlib:candidates"]), strict=True))
    scores = [
        part["stdlib:candidates"].evaluate(
            np.array([vectors[text] for text in part["stdlib:candidates"].texts()]), seed=0
        )
        for part in (whole, searched, fresh)
    ]
    assert scores[0].n == scores[1].n + scores[2].n > 200
    mean = (scores[1].value * scores[1].n + scores[2].value * scores[2].n) / scores[0].n
    assert mean == pytest.approx(scores[0].value)


def _texts_and_vectors(task):
    texts = list(dict.fromkeys(task.texts()))
    return texts, np.random.default_rng(0).normal(size=(len(texts), 16))


def test_parts_are_other_tasks_of_the_same_name(built_in):
    for whole, searched, fresh in zip(*built_in, strict=True):
        assert len({whole.key, searched.key, fresh.key}) == 3
        assert whole.name == searched.name == fresh.name
        assert len(fresh.roles()) == len(fresh.texts())


def test_own_texts_are_divided(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("text,label\n" + "".join(f"a text {i},{'ab'[i % 2]}\n" for i in range(40)))
    (whole,) = resolve([f"file:{path}"])
    (searched,), (fresh,) = divide([whole], 0.25)
    assert (len(searched.texts()), len(fresh.texts()), fresh.examples().fitted) == (30, 40, 30)
    assert len({whole.key, searched.key, fresh.key, divide([whole], 0.5)[1][0].key}) == 4


@dataclass(frozen=True)
class Whole:
    name: str = "mine"


def test_a_task_that_cannot_be_divided_is_refused_by_name():
    with pytest.raises(
        ConfigError, match=r"'mine' and 'mteb:STS12' cannot be divided.*remove 'search.confirm'"
    ):
        divide([Whole(), *resolve(["mteb:STS12", "stdlib:word"])], 0.3)


def test_too_few_items_are_refused_with_their_number(tmp_path):
    path = tmp_path / "few.csv"
    path.write_text(
        "text1,text2,score\n" + "".join(f"a text {i},another {i},{i / 7}\n" for i in range(20))
    )
    with pytest.raises(
        ConfigError, match="only 6 items of 20 would be kept back, at least 10 are needed"
    ):
        divide(resolve([f"file:{path}"]), 0.3)


def test_a_look_is_at_a_nested_sixteenth_of_a_large_task():
    texts = tuple(f"text {i}" for i in range(3200))
    large = Examples(texts, tuple(float(i % 4) for i in range(3200)))
    task = StdlibTask("task", "classification", "", lambda: large)
    look = task.look()
    assert (look.name, look.look_of, look.key != task.key) == ("task@1/16", "task", True)
    assert [look.examples().labels.count(label) for label in range(4)] == [50] * 4
    searched, _ = divide([task], 0.3)
    assert set(look.texts()) < set(searched[0].texts())
    assert searched[0].look().texts() == look.texts()
    few = Examples(texts[:1600], large.labels[:1600])
    assert StdlibTask("task", "classification", "", lambda: few).look() is None
    # all documents of a retrieval are encoded with any of its queries
    retrieval = Examples(texts * 2, judgements=((0, 0, 1.0),), queries=3200)
    assert StdlibTask("task", "retrieval", "", lambda: retrieval).look() is None
