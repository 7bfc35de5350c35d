from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._probes import PROBES
from daskmetrics.tasks._stdlib import StdlibTask
from daskmetrics.tasks.examples import Examples

OF_PREDICTIONS = {
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "macro_f1": lambda known, predicted: metrics.f1_score(known, predicted, average="macro"),
    "mcc": metrics.matthews_corrcoef,
}


def noisy_classes(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of two arms, and labels that they tell apart in part."""
    generator = np.random.default_rng(number)
    labels = np.arange(90) % 2
    rows = generator.normal(size=(90, 24))
    rows[:, 0] += 1.5 * labels
    return rows, rows + 0.7 * generator.normal(size=rows.shape), labels


def test_repeats_are_the_mean_over_other_folds():
    rows, _, labels = noisy_classes(0)
    each = [probes.classify(rows, labels, seed) for seed in (4, 5, 6)]
    score = probes.classify(rows, labels, 4, folds=probes.Folds(repeats=3))
    assert score.value == pytest.approx(np.mean([one.value for one in each]))
    assert score.outcomes.mean() == pytest.approx(score.value)
    assert 0 < score.stderr < min(one.stderr for one in each)


@pytest.mark.parametrize("measure", ["accuracy", "macro_f1"])
def test_errors_of_repeats_are_the_spread_over_data_sets(measure):
    values, errors = [], []
    for number in range(120):
        rows, noisy, labels = noisy_classes(number)
        folds = probes.Folds(repeats=5)
        one, other = (
            probes.classify(x, labels, 0, "centroid", folds, measure) for x in (rows, noisy)
        )
        apart = one.outcomes - other.outcomes
        values.append((one.value, one.value - other.value))
        errors.append((one.stderr, apart.std(ddof=1) / math.sqrt(len(apart))))
    ratios = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(values, axis=0, ddof=1)
    assert all(0.9 < ratio < 1.3 for ratio in ratios)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_errors_of_probes_are_the_spread_over_data_sets(kind):
    """Errors that count the tested texts alone are 0.7 to 0.8 times the spread."""
    values, errors = [], []
    labels = np.arange(90) % 2
    for number in range(120):
        generator = np.random.default_rng(number)
        rows = generator.normal(size=(90, 8))
        noisy = rows + 0.5 * generator.normal(size=rows.shape)
        if kind == "classification":
            one, other = (probes.classify(x, labels, 0, "centroid") for x in (rows, noisy))
        else:
            grades = 0.3 * rows.sum(axis=1) + generator.normal(size=90)
            one, other = (probes.regress(x, grades, 0) for x in (rows, noisy))
        apart = one.outcomes - other.outcomes
        values.append((one.value, one.value - other.value))
        errors.append((one.stderr, apart.std(ddof=1) / math.sqrt(90)))
    ratios = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(values, axis=0, ddof=1)
    assert (ratios > 0.9).all() and (ratios < 1.15).all(), ratios


def test_items_that_fit_nothing_have_a_binomial_error():
    generator, labels = np.random.default_rng(0), np.arange(300) % 2
    rows = generator.normal(size=(300, 4)) + labels[:, None]
    score = probes.classify(rows, labels, seed=0, folds=probes.Folds(150))
    assert score.stderr == math.sqrt(score.value * (1 - score.value) / 150)


def test_a_regression_learns_grades_and_no_noise():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(200, 6))
    score = probes.regress(rows, rows[:, 0] ** 3, seed=0)
    assert score.value > 0.9
    assert score.outcomes.mean() == pytest.approx(score.value)
    noise = probes.regress(rows, generator.normal(size=200), seed=0)
    assert abs(noise.value) < 4 * noise.stderr
    assert probes.regress(rows, rows[:, 0], seed=0, folds=probes.Folds(100)).n == 100
    assert probes.regress(rows, np.ones(200), seed=0).value == 0


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_a_regression_does_not_depend_on_the_unit_of_the_grades(unit):
    rows = np.random.default_rng(0).normal(size=(200, 6))
    score = probes.regress(rows, rows[:, 0] ** 3, seed=0)
    assert probes.regress(rows, unit * rows[:, 0] ** 3, seed=0).value == pytest.approx(score.value)


@pytest.mark.parametrize("fitted", [0, 120])
def test_several_labels_are_ranked_from_what_was_fitted(fitted):
    generator = np.random.default_rng(0)
    known = (generator.random((180, 5)) < 0.3).astype(np.int64)
    known[known.sum(axis=1) == 0, 0] = 1
    rarest = np.where(known, known.sum(axis=0), 999).argmin(axis=1)
    rows = 3 * known + generator.normal(size=known.shape)
    score, again = (
        probes.rank_labels(rows, known, rarest, 0, probes.Folds(fitted)) for _ in range(2)
    )
    assert len(score.outcomes) == score.n == 180 - fitted
    of_outcomes = score.outcomes.std(ddof=1) / math.sqrt(score.n)
    # what the probes learn from counts more in a score than in a difference of two
    assert score.stderr / of_outcomes == pytest.approx(1.0 if fitted else 1.0025, abs=1e-4)
    assert np.array_equal(again.outcomes, score.outcomes)
    noise = probes.rank_labels(
        generator.normal(size=rows.shape), known, rarest, 0, probes.Folds(fitted)
    )
    assert noise.value + 4 * noise.stderr < score.value


def test_a_label_that_no_probe_has_seen_is_the_least_probable():
    known = np.eye(2, dtype=np.int64)[np.arange(60) % 2]
    known = np.hstack([known, np.zeros((60, 1), dtype=np.int64), np.ones((60, 1), dtype=np.int64)])
    known[40, 2] = 1  # among those that fit nothing
    score = probes.rank_labels(9.0 * known, known, known[:, 0], seed=0, folds=probes.Folds(30))
    assert score.outcomes.min() == score.outcomes[10] < 1


@pytest.mark.parametrize(("width", "scale"), [(1, 1e6), (8, 1e-6), (512, 1e6), (512, 1e-6)])
def test_classify_converges_on_any_scale(width, scale):
    # warnings are errors here
    features = np.random.default_rng(width).standard_t(2, size=(120, width)) * scale
    probes.classify(features.astype(np.float32), np.arange(120) % 12, seed=0)


@pytest.fixture(params=PROBES)
def probe(request):
    if not any(probes.library_version(request.param)):
        pytest.skip("needs the extra 'trees'")
    return str(request.param)


def test_every_probe_learns_signal_and_not_noise(probe):
    generator, labels = np.random.default_rng(0), np.arange(240) % 4
    noise = generator.normal(size=(240, 8))
    there = probes.classify(noise + 3 * np.eye(8)[labels], labels, seed=1, probe=probe)
    absent = probes.classify(noise, labels, seed=1, probe=probe)
    assert there.value > 0.85 and abs(absent.value - 0.25) < 4 * absent.stderr
    assert len(np.unique(absent.outcomes)) == 2
    assert absent.outcomes.mean() == pytest.approx(absent.value)
    assert (absent.outcomes > absent.value).mean() == pytest.approx(absent.value)
    rows, labels = noise[:90] + np.eye(8)[labels[:90]], labels[:90]
    first, again = (probes.classify(rows, labels, 2**63 - 1, probe) for _ in range(2))
    assert first == again
    assert len({probes.classify(rows, labels, seed, probe).value for seed in range(6)}) > 1
    few = np.arange(6) % 2  # fewer texts than neighbours
    assert probes.classify(noise[:6] + np.eye(8)[few], few, 0, probe).n == 6


def test_a_penalty_is_chosen_by_the_texts_it_learns_from():
    """The classes differ in the small difference of two dimensions, which needs great weights."""
    generator, labels = np.random.default_rng(0), np.arange(240) % 2
    common = generator.normal(size=240)
    rows = np.stack([common + 0.1 * labels, common], axis=1)
    rows += 0.02 * generator.normal(size=(240, 2))
    fixed, chosen = (
        probes.classify(rows, labels, 0, probe) for probe in ("logistic", "logistic_cv")
    )
    assert chosen.value > fixed.value + 3 * fixed.stderr


def test_the_error_for_a_missing_library_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(probes, "library_version", lambda probe: ("", ""))
    with pytest.raises(ConfigError, match=r"pip install 'daskmetrics\[trees\]'"):
        probes.require("lightgbm")


def test_order_does_not_depend_on_the_text_alone():
    # a first half that differs from pair to pair, but by nothing that the second half has not too
    same = np.random.default_rng(0).normal(size=(200, 16))
    assert abs(probes.order(same, same[::-1], seed=0).value - 0.5) < 0.15


@pytest.mark.parametrize("probe", ["logistic", "logistic_cv", "ridge", "knn", "centroid"])
@pytest.mark.parametrize("classes", [2, 4])
def test_measures_equal_those_of_scikit_learn_on_the_same_folds(probe, classes):
    generator = np.random.default_rng(classes)
    labels = np.minimum(generator.geometric(0.4, 240) - 1, classes - 1)
    rows = generator.normal(size=(240, 6)) + 1.2 * np.eye(6)[labels]
    folds = StratifiedKFold(probes.FOLDS, shuffle=True, random_state=5)
    model = probes._model(probe, 5, len(labels))
    predicted = cross_val_predict(model, rows, labels, cv=folds)
    for measure, of_predictions in OF_PREDICTIONS.items():
        score = probes.classify(rows, labels, 5, probe, measure=measure)
        assert score.value == pytest.approx(of_predictions(labels, predicted))
        assert score.outcomes.mean() == pytest.approx(score.value) and score.stderr > 0
    method = "decision_function" if probe == "ridge" else "predict_proba"
    scores = cross_val_predict(model, rows, labels, cv=folds, method=method)
    known = np.eye(classes, dtype=int)[labels]
    if classes == 2:  # of the rarer label
        known, scores = labels == 1, scores if scores.ndim == 1 else scores[:, 1]
        if labels.mean() > 0.5:
            known, scores = ~known, -scores
    wanted = metrics.average_precision_score(known, scores)
    score = probes.classify(rows, labels, 5, probe, measure="average_precision")
    assert score.value == pytest.approx(wanted)


@pytest.mark.parametrize("labels", [[0] * 70 + [1] * 30, [0] * 50 + [1] * 30 + [2] * 20])
def test_the_chance_of_each_measure_is_that_of_a_guess(labels):
    examples = Examples(tuple(f"text {i}" for i in range(100)), tuple(labels))
    task = StdlibTask("task", "classification", "", lambda: examples)
    guess = DummyClassifier().fit(np.zeros((100, 1)), labels)
    guessed, scores = (f(np.zeros((100, 1))) for f in (guess.predict, guess.predict_proba))
    for measure, of_predictions in (*OF_PREDICTIONS.items(), ("accuracy", metrics.accuracy_score)):
        chance = task.with_measure(measure).floor.value
        assert chance == pytest.approx(of_predictions(labels, guessed))
    known = np.eye(3)[labels] if max(labels) == 2 else np.array(labels)
    wanted = metrics.average_precision_score(known, scores if max(labels) == 2 else scores[:, 1])
    assert task.with_measure("average_precision").floor.value == pytest.approx(wanted)


@pytest.mark.parametrize("measure", [*OF_PREDICTIONS, "average_precision"])
def test_errors_of_measures_are_the_spread_over_data_sets(measure):
    rows = []
    for number in range(100):
        generator = np.random.default_rng(number)
        labels = (generator.random(150) < 0.3).astype(int)
        first = generator.normal(size=(150, 6)) + 0.5 * labels[:, None]
        second = first + 0.5 * generator.normal(size=first.shape)
        one, other = (
            probes.classify(x, labels, 0, "centroid", measure=measure) for x in (first, second)
        )
        paired = (one.outcomes - other.outcomes).std(ddof=1) / math.sqrt(len(one.outcomes))
        rows.append((one.value, one.value - other.value, one.stderr, paired))
    values, errors = np.split(np.array(rows), 2, axis=1)
    ratios = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(values, axis=0, ddof=1)
    assert (ratios > 0.8).all() and (ratios < 1.3).all(), ratios


def test_a_probe_that_names_one_class_alone_has_an_error():
    """A jackknife of its balanced accuracy sees none."""
    labels = (np.arange(200) < 20).astype(int)
    score = probes.classify(
        np.random.default_rng(0).normal(size=(200, 2)), labels, 0, measure="balanced_accuracy"
    )
    assert score.value == 0.5 and 0.02 < score.stderr < 0.05
