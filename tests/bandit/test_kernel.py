from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from daskmetrics.bandit import Problem, arm_features
from daskmetrics.bandit._features import metrics_of_arms
from daskmetrics.bandit._kernel import ArmKernel, Hyperparameters, fit_model, readout_distances
from daskmetrics.bandit._problem import Observations
from daskmetrics.core.names import Arm, Checkpoint, Suite

PARTS = ("", "last", "max"), ("", "256d", "64d", "pca64"), ("", "whitened"), ("", "float16", "int8", "binary")
NAMES = tuple(",".join(filter(None, parts)) for parts in product(*PARTS))
LAYERS = (0, 1, 2, 3, 4, 5, 6)


def problem(names: tuple[str, ...] = NAMES) -> Problem:
    suite = Suite("m", ("main",), LAYERS, 6, names)
    cost = np.ones((len(suite.arms()), 1))
    return Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost, Checkpoint("m", "main"))


def kernel(of: Problem) -> np.ndarray:
    arms = np.arange(len(of.arms))
    return ArmKernel(of, *Hyperparameters().of_arms)(arms, arms)


def test_the_covariance_of_arms_with_readouts_is_one():
    values = np.linalg.eigvalsh(kernel(problem()))
    assert values.min() > -1e-8 * values.max()


def test_distances_are_a_metric_and_zero_for_one_readout_alone():
    apart = readout_distances(NAMES)
    assert np.array_equal(apart, apart.T)
    assert (np.diag(apart) == 0).all() and (apart + np.eye(len(NAMES)) > 0).all()
    detour = apart[:, :, None] + apart[None]  # from the first by the second to the third
    assert (apart[:, None] <= detour + 1e-12).all()


@pytest.mark.parametrize(
    ("near", "far"),
    [("float16", "int8"), ("int8", "binary"), ("256d", "64d"), ("int8", "last"), ("last", "last,binary")],
)
def test_what_changes_a_vector_less_is_more_alike(near, far):
    apart = readout_distances(["", near, far])
    assert apart[0, 1] < apart[0, 2]


def test_a_readout_is_more_like_its_layer_than_like_distant_layers_of_its_own():
    of, covariance = problem(), kernel(problem())
    place = {(arm.layer, arm.readout): i for i, arm in enumerate(of.arms)}
    one = place[3, "int8"]
    assert covariance[one, place[3, ""]] > covariance[one, place[0, "int8"]]
    assert covariance[one, place[2, "int8"]] > covariance[one, place[2, "last,64d,binary"]]


def test_without_readouts_the_covariance_does_not_depend_on_their_scale():
    plain = problem(("",))
    arms = np.arange(len(plain.arms))
    one, other = (ArmKernel(plain, 0.3, 0.3, 0.4, scale)(arms, arms) for scale in (1.0, 0.01))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(("spread", "is_alike"), [(0.001, True), (0.3, False)])
def test_how_alike_readouts_are_is_learned_from_the_scores(spread, is_alike):
    of, chance = problem(), np.random.default_rng(0)
    level = dict(zip(NAMES, chance.normal(size=len(NAMES)), strict=True))
    rows = [(i, 0, 0.5 + 0.1 * arm.layer / 6 + spread * level[arm.readout], 0.0) for i, arm in enumerate(of.arms)]
    drawn = [rows[i] for i in chance.permutation(len(rows))[:120]]
    learned = fit_model(of, Observations.of(drawn)).hyperparameters.readout_scale
    assert learned > 1 if is_alike else learned < 1


def test_layers_together_lie_between_them_and_readouts_of_a_layer_share_its_metrics():
    suite = Suite("m", ("a", "b"), (0, 1, 2), 2, ("", "last", "mean0-2"))
    by_layer = np.arange(6.0)[:, None]
    spread = metrics_of_arms([suite], by_layer)[:, 0].tolist()
    assert spread == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 5]
    depth = dict(zip(suite.arms(), arm_features([suite])[:, 1], strict=True))
    assert depth[Arm("m", "a", 2, "mean0-2")] == 0.5
    assert depth[Arm("m", "a", 2, "last")] == 1.0


def test_the_baseline_is_the_first_readout_of_each_layer_and_its_last_layer_the_default_arm():
    suite = Suite("m", ("main",), (0, 1), 1, ("", "int8", "concat0+1"))
    cost = np.ones((5, 1))
    found = Problem(suite.arms(), ("t",), arm_features([suite]), cost, cost, Checkpoint("m", "main"))
    assert [str(found.arms[i]) for i in found.baseline_arms] == ["m@main/0", "m@main/1"]
    assert str(found.arms[found.default_arms[0]]) == "m@main/1"
