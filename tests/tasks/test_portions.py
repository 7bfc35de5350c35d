"""Parts of a task's items."""

from __future__ import annotations

import random

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks import resolve
from daskmetrics.tasks._stdlib import StdlibTask
from daskmetrics.tasks.examples import Examples, divide, kept_back
from daskmetrics.tasks.task import Portion

TEXTS = tuple(f"text {i}" for i in range(60))
LABELS = tuple(i % 3 for i in range(60))
SEARCHED, FRESH = (Portion(0.3, fresh) for fresh in (False, True))


def part(kind, examples, portion, name="task"):
    """A part, and its texts without those that only fit a probe."""
    portioned = StdlibTask(name, kind, "", lambda: examples, portion=portion).examples()
    return portioned, set(portioned.texts[portioned.fitted :])


@pytest.fixture(scope="module")
def built_in():
    """All built-in tasks by name: whole, of the search, and of the fresh items."""
    tasks = resolve(["stdlib:all"])
    return [{task.name: task for task in part} for part in (tasks, *divide(tasks, 0.3))]


@pytest.mark.parametrize("kind", ["classification", "clustering"])
def test_each_label_keeps_back_the_share(kind):
    parts = [part(kind, Examples(TEXTS, LABELS), portion) for portion in (SEARCHED, FRESH)]
    labels = [portioned.labels[portioned.fitted :] for portioned, _ in parts]
    assert [np.bincount(of_part).tolist() for of_part in labels] == [[14] * 3, [6] * 3]
    assert parts[0][1] | parts[1][1] == set(TEXTS)


def test_parts_depend_on_the_name_and_not_on_the_order():
    rows = list(zip(TEXTS, LABELS, strict=True))
    random.Random(0).shuffle(rows)
    shuffled = Examples(*map(tuple, zip(*rows, strict=True)))
    _, plain = part("clustering", Examples(TEXTS, LABELS), FRESH)
    assert part("clustering", shuffled, FRESH)[1] == plain
    assert part("clustering", Examples(TEXTS, LABELS), FRESH, name="another")[1] != plain
    copies = Examples(TEXTS + TEXTS, LABELS + LABELS)  # stay together
    parts = [part("classification", copies, portion)[1] for portion in (SEARCHED, FRESH)]
    assert parts[0] | parts[1] == set(TEXTS) and not parts[0] & parts[1]


def test_three_items_of_a_rare_label_remain_in_the_search():
    labels = np.array([0] * 50 + [1] * 4 + [2] * 3)
    fresh = kept_back([f"{i:02}" for i in range(57)], labels, 0.5)
    assert [int(fresh[labels == label].sum()) for label in range(3)] == [25, 1, 0]


def test_a_probe_is_fitted_to_the_search_and_tested_on_fresh(built_in):
    """What a probe can only know from a test text, it does not know."""
    _, searched, fresh = built_in
    for name, texts_of_item in (("stdlib:package", 1), ("stdlib:order", 2)):
        whole = fresh[name].examples()
        n = len(whole.texts) // texts_of_item
        assert whole.fitted == len(searched[name].texts()) // texts_of_item > n - whole.fitted
        random_vectors = np.random.default_rng(0).normal(size=(len(whole.texts), 8))
        score = fresh[name].evaluate(random_vectors, seed=1)
        assert score.n == n - whole.fitted == len(score.outcomes)
        assert score.value < 0.5 + 3 * score.stderr
    package = fresh["stdlib:package"]
    vectors = np.eye(12)[np.array(package.examples().labels)]
    assert package.evaluate(vectors, seed=1).value == 1.0
    vectors[package.examples().fitted :] = np.eye(12)[0]  # test texts look like the first class
    assert package.evaluate(vectors, seed=1).value == pytest.approx(1 / 12)


def test_documents_are_in_both_parts_and_queries_in_one(built_in):
    whole, searched, fresh = built_in
    every = whole["stdlib:candidates"].examples()
    for name in ("stdlib:retrieval", "stdlib:candidates"):
        parts = [tasks[name].examples() for tasks in (searched, fresh)]
        queries = [set(examples.texts[: examples.queries]) for examples in parts]
        assert not queries[0] & queries[1] and sum(map(len, queries)) == every.queries > 200
        for examples in parts:
            assert all(query < examples.queries for query, _, _ in examples.judgements)
            documents = len(examples.texts) - examples.queries
            assert name == "stdlib:candidates" or documents == every.queries
    pairs = {(every.texts[q], every.texts[every.queries + d], r) for q, d, r in every.judgements}
    for examples in parts:  # of the candidates
        texts, n = examples.texts, examples.queries
        assert {(texts[q], texts[n + d], r) for q, d, r in examples.judgements} < pairs


def test_scores_of_the_parts_average_to_that_of_the_whole(built_in):
    candidates = [tasks["stdlib:candidates"] for tasks in built_in]
    texts = list(dict.fromkeys(candidates[0].texts()))
    rows = np.random.default_rng(0).normal(size=(len(texts), 16))
    vectors = dict(zip(texts, rows, strict=True))
    whole, searched, fresh = (
        task.evaluate(np.array([vectors[text] for text in task.texts()]), seed=0)
        for task in candidates
    )
    assert whole.n == searched.n + fresh.n > 200
    of_parts = searched.value * searched.n + fresh.value * fresh.n
    assert whole.value * whole.n == pytest.approx(of_parts)
    assert len({task.key for task in candidates}) == 3
    assert len({task.name for task in candidates}) == 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(20) / 7, "only 6 items of 20 would be kept back, at least 10 are needed"),
        ([1.0] * 38 + [0.0] * 3, "the items kept back would have only one label for"),
    ],
)
def test_a_part_that_says_too_little_is_refused(labels, message):
    texts = tuple(f"text {i}" for i in range(2 * len(labels)))
    kind = "sts" if len(labels) == 20 else "pair_classification"
    task = StdlibTask("task", kind, "", lambda: Examples(texts, tuple(labels)))
    with pytest.raises(ConfigError, match=message):
        divide([task], 0.3)
