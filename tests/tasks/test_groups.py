"""Items that come in groups, such as scans of patients: folds, errors and parts keep them whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._stdlib import StdlibTask
from daskmetrics.tasks.examples import Examples, divide
from daskmetrics.tasks.registry import resolve

PATIENTS, SCANS, WIDTH = 20, 40, 8
PATIENT = np.repeat(np.arange(PATIENTS), SCANS)


def clinic(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of two layers and labels; both depend on the patient."""
    generator = np.random.default_rng([number, 11])
    ill = (generator.permutation(PATIENTS) < generator.integers(7, 14)).astype(int)
    labels = np.where(generator.random(len(PATIENT)) < 0.1, 1 - ill[PATIENT], ill[PATIENT])
    of_patient, other = generator.normal(size=(2, PATIENTS, WIDTH))[:, PATIENT]
    noise, more = generator.normal(size=(2, len(PATIENT), WIDTH))
    first = 0.8 * labels[:, None] + 0.6 * of_patient + noise
    return first, first + 0.5 * other + 0.5 * more, labels


def within_two_errors(grouped: bool, truth: tuple[float, float] | None) -> tuple[np.ndarray, ...]:
    """Shares of scores and of paired differences within 1.96 errors of the truth, and the means."""
    folds = probes.Folds(groups=PATIENT if grouped else None)
    rows = []
    for number in range(60):
        first, second, labels = clinic(number)
        one, two = (probes.classify(x, labels, 0, "centroid", folds) for x in (first, second))
        paired = measures.mean(one.outcomes - two.outcomes).stderr
        rows.append((one.value, one.value - two.value, one.stderr, paired))
    values, errors = np.split(np.array(rows), 2, axis=1)
    centre = values.mean(axis=0)
    apart = np.abs(values - (centre if truth is None else truth))
    return (apart < 1.96 * errors).mean(axis=0), centre


def test_errors_of_grouped_items_hold_for_new_groups():
    """Twenty groups give a little less than 95 %; rows taken as independent far less."""
    covered, truth = within_two_errors(grouped=True, truth=None)
    assert (covered > 0.86).all() and (covered < 0.99).all(), covered
    of_rows, _ = within_two_errors(grouped=False, truth=truth)
    assert (of_rows < 0.75).all(), of_rows


@given(st.integers(0, 2**32), st.integers(3, 12), st.integers(2, 4))
def test_items_of_a_group_are_in_one_fold(seed, groups, labels):
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), generator.integers(4, 9, groups))
    label = generator.permutation(len(group)) % labels
    tested = []
    for train, fold in probes.Folds(groups=group).splits(None, label, seed):
        assert not {*group[train]} & {*group[fold]}
        tested += [*fold]
    assert sorted(tested) == [*range(len(group))]


def test_repeated_items_of_one_group_say_no_more_than_one():
    """Each item five times, in a group of its own: scores and errors are those of once."""
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(2, 40, 6))
    labels, judged = np.arange(40) % 2, [(i, i, 1.0) for i in range(40)]
    group = np.repeat(np.arange(40), 5)
    copies, again = first[group], second[group]
    repeated = [(i, int(group[i]), 1.0) for i in range(200)]
    grades = generator.normal(size=40)
    pairs = [
        (measures.ndcg(first, second, judged), measures.ndcg(copies, second, repeated, group)),
        (
            measures.mean_average_precision(first, second, judged),
            measures.mean_average_precision(copies, second, repeated, group),
        ),
        (
            measures.average_precision(first, second, labels),
            measures.average_precision(copies, again, labels[group], group),
        ),
    ]
    for once, five in pairs:
        assert five.value == pytest.approx(once.value)
        assert five.stderr == pytest.approx(once.stderr)
        assert five.outcomes == pytest.approx(once.outcomes)
        assert five.n == 200
    once = measures.spearman(first, second, grades)
    five = measures.spearman(copies, again, grades[group], group)
    assert five.outcomes == pytest.approx(once.outcomes)
    assert five.stderr == pytest.approx(once.outcomes.std(ddof=1) / math.sqrt(40))


def test_clusters_are_drawn_and_blocked_by_groups():
    """Of groups whose texts are copies the error is greater than of as many texts."""
    generator = np.random.default_rng(0)
    label = np.arange(30) % 2
    group = np.repeat(np.arange(30), 6)
    rows = (generator.normal(size=(30, 4)) + label[:, None])[group]
    grouped = measures.v_measure(rows, label[group], 0, group)
    alone = measures.v_measure(rows, label[group], 0)
    assert grouped.stderr > 1.5 * alone.stderr
    assert len(grouped.outcomes) == 30 + 8 and len(alone.outcomes) == 180 + 8


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel_classification"])
def test_copies_in_a_group_teach_no_probe(kind):
    """Vectors that say the group alone are worth nothing once groups are whole."""
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(30), 8)
    label = generator.permutation(np.arange(30) % 2)[group]
    rows = generator.normal(size=(30, 40))[group]
    scores = []
    for folds in (probes.Folds(), probes.Folds(groups=group)):
        if kind == "classification":
            scores.append(probes.classify(rows, label, 0, folds=folds))
        elif kind == "regression":
            scores.append(probes.regress(rows, label.astype(float), 0, folds))
        else:
            known = np.stack([label, 1 - label], axis=1)
            scores.append(probes.rank_labels(rows, known, label, 0, folds))
    leaked, honest = scores
    chance = {"classification": 0.5, "regression": 0.0, "multilabel_classification": 0.75}[kind]
    assert leaked.value > 0.8 and abs(honest.value - chance) < 3 * honest.stderr
    assert len(honest.outcomes) == 30


def test_parts_of_a_task_keep_groups_whole():
    groups = tuple(i // 5 for i in range(150))
    texts = tuple(f"text {i}" for i in range(150))
    labels = tuple((i // 5) % 3 for i in range(150))
    examples = Examples(texts, labels, groups=groups)
    task = StdlibTask("task", "classification", "", lambda: examples)
    (seen,), (fresh,) = divide([task], 0.3)
    tested = fresh.examples()
    kept = {*tested.groups[tested.fitted :]}
    assert (seen.groups, fresh.groups) == (21, 9)
    assert not kept & {*seen.examples().groups}
    assert kept | {*seen.examples().groups} == {*groups}
    score = fresh.evaluate(np.eye(3)[np.array(tested.classes)], seed=0)
    assert (score.value, score.n, len(score.outcomes)) == (1.0, 45, 9)
    # nine groups without an error, and not 45 items
    assert score.stderr == pytest.approx(math.sqrt(10 / 11 * 1 / 11 / 9))


def test_a_part_of_too_few_groups_is_refused():
    texts = tuple(f"text {i}" for i in range(60))
    examples = Examples(texts, (0.0, 1.0) * 30, groups=tuple(i // 12 for i in range(60)))
    task = StdlibTask("task", "classification", "", lambda: examples)
    with pytest.raises(ConfigError, match="only 2 groups would be kept back, at least 3"):
        divide([task], 0.4)


def test_a_probe_that_splits_groups_itself_is_refused(tmp_path):
    rows = [f"text {i},{i % 2},{i // 4}" for i in range(48)]
    (tmp_path / "scans.csv").write_text("\n".join(["text,label,group", *rows]))
    name = f"file:{tmp_path / 'scans.csv'}(group=group, probe={{}})"
    assert resolve([name.format("ridge")])[0].groups == 12
    with pytest.raises(ConfigError, match="logistic_cv chooses its C by folds that do not keep"):
        resolve([name.format("logistic_cv")])
