from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.tasks import resolve
from daskmetrics.tasks._stdlib import PACKAGES, TASKS
from daskmetrics.tasks.examples import Examples

CHANCE = {
    "stdlib:next_token": 1 / 3,
    "stdlib:order": 1 / 2,
    "stdlib:retrieval": 0.021,
    "stdlib:package": 1 / 12,
    "stdlib:word": 1 / 20,
    "stdlib:clusters": 0.116,
    "stdlib:closeness": 0.0,
    "stdlib:candidates": 0.293,
}
tasks = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def planted(examples: Examples) -> NDArray[np.float32]:
    """Embeddings that hold the answer: the class, or for pairs the pair's identity and the side."""
    noise = np.random.default_rng(0).normal(size=(len(examples.texts), 32))
    if len(examples.labels) == len(noise) // 2:  # grades of pairs
        pairs = len(noise) // 2
        noise[pairs:] = noise[:pairs]
        noise[:, :2] = 5, 0
        noise[pairs:, 1] = 5 * (3 - np.array(examples.labels))
    elif examples.labels:
        noise[:, :20] += 10 * np.eye(20)[list(examples.labels)]
    else:
        pairs = len(noise) // 2
        noise[pairs:] = noise[:pairs]
        noise[pairs:, 0] += 4
    return noise.astype(np.float32)


@tasks
def test_a_planted_embedding_scores_high_and_a_random_one_low(task):
    """Outcomes are those of the score, and repeat."""
    score = task.evaluate(planted(task.draw()), seed=2**63 - 1)  # the largest seed
    assert score.value > 0.9 and 0 < score.stderr < 0.02  # also where all items are right
    noise = np.random.default_rng(1).normal(size=(len(task.texts()), 32))
    random, same = (task.evaluate(noise.copy(), seed=0) for _ in range(2))
    assert random == same and (random.outcomes == same.outcomes).all()
    assert abs(random.value - CHANCE[task.name]) < 4 * random.stderr
    assert 0 < random.stderr < 0.06
    assert random.outcomes.mean() == pytest.approx(random.value)
    of_outcomes = random.outcomes.std(ddof=1) / len(random.outcomes) ** 0.5
    assert of_outcomes == pytest.approx(random.stderr, rel=0.3)
    constant = task.evaluate(np.ones_like(noise), seed=0)
    assert constant.value <= CHANCE[task.name] + 0.02


@pytest.mark.parametrize(("missing_rows", "value"), [(1, 0.0), (0, np.nan)])
def test_invalid_embeddings_are_an_error(missing_rows, value):
    task = TASKS["stdlib:word"]
    embeddings = np.zeros((len(task.texts()) - missing_rows, 4))
    embeddings[0, 0] = value
    with pytest.raises(DataError, match=task.name):
        task.evaluate(embeddings, seed=0)


@tasks
def test_texts_are_short_many_and_held_out(task):
    texts = task.texts()
    assert 400 <= len(texts) <= 1000
    assert max(len(text.split()) for text in texts) <= 24
    trained = " ".join(" ".join(document.text.split()) for document in corpus.train())
    assert not [text for text in texts if len(text.split()) >= 10 and text in trained]


@pytest.mark.parametrize(
    ("name", "classes", "count"),
    [
        ("next_token", 3, 300),
        ("package", len(PACKAGES), 40),
        ("word", 20, 24),
        ("closeness", 4, 75),
    ],
)
def test_classes_and_grades_are_balanced(name, classes, count):
    counts = np.bincount(np.array(TASKS[f"stdlib:{name}"].draw().labels, dtype=int))
    # each version of Python brings other texts, sometimes a few too few
    assert len(counts) == classes and counts.max() == count and counts.min() >= 0.95 * count


def test_another_probe_is_another_task():
    (other,) = resolve(["stdlib:package(probe=ridge)"])
    assert other.name == "stdlib:package(probe=ridge)" and other.key != TASKS["stdlib:package"].key
    assert other.texts() == TASKS["stdlib:package"].texts()
    with pytest.raises(ConfigError, match="which has no probe"):
        resolve(["stdlib:order(probe=ridge)"])
    with pytest.raises(ConfigError, match="option of 'stdlib:word' 'prob'"):
        resolve(["stdlib:word(prob=ridge)"])
