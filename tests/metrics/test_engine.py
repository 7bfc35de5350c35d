"""The Reducer: the same numbers as direct calls, whatever the order, and a reason wherever there is
none.
"""

import math
import pickle
import sys

import numpy as np
import pytest
import torch

from daskmetrics.core.results import Status
from daskmetrics.metrics import Metric, resolve
from daskmetrics.metrics import _spectra as spectra
from daskmetrics.metrics._spectra import eigenvalues
from daskmetrics.metrics.engine import Reduced, Reducer
from daskmetrics.metrics.registry import CATALOGUE

LAYERS, PROMPTS, TOKENS, WIDTH = (0, 2, 5), 8, 6, 4
LENGTHS = torch.tensor([6, 3, 1, 5, 6, 4, 2, 6])
NO_VIEW = (
    "layer 2: states of the second view are missing for 8 of 8 prompts (views drop and swap words; single words have "
    "none)"
)
MASK = torch.arange(TOKENS) < LENGTHS[:, None]
BATCHES = [
    (layer, rows, view)
    for layer in LAYERS
    for rows in ([0, 3, 5], [1, 2], [4, 6, 7])
    for view in range(4)
]


@pytest.fixture
def states() -> dict[tuple[int, int], torch.Tensor]:
    """Hidden states (P, T, D) of every (layer, view)."""
    rng = np.random.default_rng(0)
    return {
        (layer, view): torch.from_numpy(rng.normal(size=(PROMPTS, TOKENS, WIDTH))).float()
        for layer in LAYERS
        for view in range(4)
    }


def pool(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states.where(mask[..., None], 0).sum(1) / mask.sum(1, keepdim=True)


def add(reducer: Reducer, states: dict, layer: int, rows: list[int], view: int) -> None:
    batch, mask = states[layer, view][rows], MASK[rows]
    reducer.add(layer, torch.tensor(rows), batch, mask, pool(batch, mask), view)


def reduce(states: dict, names: list[str] = ("all",), batches: list = BATCHES) -> Reduced:
    reducer = Reducer(resolve(names), LAYERS, PROMPTS)
    for layer, rows, view in batches:
        if view < reducer.views:
            add(reducer, states, layer, rows, view)
    return reducer.finish()


def cell(reduced: Reduced, layer: int, name: str) -> tuple[int, int]:
    return LAYERS.index(layer), reduced.metrics.index(name)


@pytest.mark.parametrize("name", CATALOGUE)
def test_agrees_with_direct_calls(states, name):
    metric, reduced = CATALOGUE[name], reduce(states)
    assert reduced.metrics == tuple(CATALOGUE)
    for layer, deeper in zip(LAYERS, (2, 5, None), strict=True):
        where = cell(reduced, layer, name)
        arrays = [pool(states[layer, view], MASK) for view in range(metric.views)]
        if metric.takes == "tokens":
            each = metric.load()(states[layer, 0], MASK).double().numpy()
            each = each[~np.isnan(each)]
            assert reduced.values[where] == pytest.approx(each.mean())
            assert reduced.stderr[where] == pytest.approx(each.std(ddof=1) / math.sqrt(len(each)))
        elif metric.takes == "layers" and deeper is None:
            assert reduced.status[where] == Status.NOT_APPLICABLE and math.isnan(
                reduced.values[where]
            )
            assert reduced.reasons == {}
        else:
            if metric.takes == "layers":
                arrays.append(pool(states[deeper, 0], MASK))
            assert reduced.values[where] == pytest.approx(metric.load()(*arrays).item())


def test_one_spectrum_serves_all_metrics_of_one_preparation(states, monkeypatch):
    solved = []
    monkeypatch.setattr(
        spectra, "eigenvalues", lambda matrix: solved.append(matrix.shape) or eigenvalues(matrix)
    )
    names = ["spectral", "dataset_entropy(norm=logN)", "stable_rank(centred=true)"]
    reduce(states, names)
    # centred, not centred, and unit rows centred, of the smaller matrix
    assert solved == [torch.Size([4, 4])] * 3 * len(LAYERS)
    solved.clear()
    reduce(
        states, ["prompt_entropy", "prompt_entropy(norm=maxEntropy)", "prompt_entropy(alpha=0.5)"]
    )
    assert len(solved) == len(BATCHES) // 4


@pytest.mark.parametrize("seed", range(5))
def test_order_of_adding_changes_no_bit(states, seed):
    order = np.random.default_rng(seed).permutation(len(BATCHES))
    shuffled = reduce(states, batches=[BATCHES[i] for i in order])
    for field in ("values", "stderr", "status"):
        np.testing.assert_array_equal(getattr(shuffled, field), getattr(reduce(states), field))


def test_a_layer_that_is_not_finite_has_reasons_and_does_not_change_others(states):
    clean = reduce(states)
    states[2, 0][3, 4] = torch.inf
    reduced = reduce(states)
    assert np.isnan(reduced.values[1]).all()
    assert (reduced.status[1] == Status.NAN).all()
    assert set(reduced.reasons) == {(2, name) for name in CATALOGUE} | {(0, "cka_next")}
    # it names the layer to blame
    assert reduced.reasons[0, "cka_next"] == reduced.reasons[2, "cka_next"]
    assert reduced.reasons[2, "curvature"] == "layer 2: states are not finite for 1 of 8 prompts"
    others = [name != "cka_next" for name in CATALOGUE]
    np.testing.assert_array_equal(
        reduced.values[[0, 2]][:, others], clean.values[[0, 2]][:, others]
    )


def test_padding_may_hold_anything(states):
    clean = reduce(states)
    for array in states.values():
        array[~MASK] = torch.nan
    np.testing.assert_allclose(reduce(states).values, clean.values, rtol=1e-6)


def test_a_second_view_that_is_not_finite_affects_only_metrics_of_views(states):
    states[0, 1][0, 0] = torch.nan
    reduced = reduce(states)
    assert set(reduced.reasons) == {(0, name) for name in ("infonce", "alignment", "lidar", "dime")}
    assert (
        reduced.reasons[0, "infonce"]
        == "layer 0: states of the second view are not finite for 1 of 8 prompts"
    )


def test_vectors_that_are_not_finite_count_as_such():
    reducer = Reducer(resolve(["effective_rank"]), [0], 2)
    reducer.add(
        0,
        torch.arange(2),
        torch.ones(2, 3, 2),
        torch.ones(2, 3, dtype=torch.bool),
        torch.full((2, 2), torch.nan),
    )
    assert reducer.finish().reasons == {
        (0, "effective_rank"): "layer 0: states are not finite for 2 of 2 prompts"
    }


def test_prompts_that_were_not_added_are_counted_as_missing(states):
    some = reduce(states, batches=[(0, [0, 1, 2], 0), (2, list(range(8)), 0)])
    assert some.reasons[0, "curvature"] == "layer 0: states are missing for 5 of 8 prompts"
    assert some.reasons[2, "infonce"] == NO_VIEW
    assert some.reasons[5, "anisotropy"] == "layer 5: no states were added"
    assert some.reasons[2, "lidar"] == NO_VIEW
    assert some.status[cell(some, 2, "curvature")] == Status.OK


def test_a_metric_that_no_prompt_defines_has_a_reason(states):
    reducer = Reducer(resolve(["curvature", "effective_rank"]), [0], 3)
    one_token = torch.ones(3, 1, 4)
    reducer.add(0, torch.arange(3), one_token, torch.ones(3, 1, dtype=torch.bool), one_token[:, 0])
    reduced = reducer.finish()
    assert np.isnan(reduced.values).all()
    assert reduced.reasons == {
        (0, "curvature"): "layer 0: curvature is not defined for these states",
        (0, "effective_rank"): "layer 0: the vectors of all 3 prompts are equal",
    }


def test_equal_vectors_of_a_layer_are_a_status_and_not_a_number(states):
    for view in range(4):
        states[2, view][:] = states[2, view][0]
    reducer = Reducer(resolve(["all"]), LAYERS, PROMPTS)
    for layer, view in states:
        array = states[layer, view]  # the vector of the first token, as the pooling `cls` reads it
        reducer.add(
            layer, torch.arange(PROMPTS), array, torch.ones(PROMPTS, TOKENS), array[:, 0], view
        )
    reduced = reducer.finish()
    ofvectors = [metric.takes != "tokens" for metric in resolve(["all"])]
    assert (reduced.status[1, ofvectors] == Status.NAN).all() and np.isnan(
        reduced.values[1, ofvectors]
    ).all()
    # tokens differ within each prompt
    assert np.isfinite(reduced.values[1, np.logical_not(ofvectors)]).all()
    assert {reduced.reasons[2, name] for name in ("anisotropy", "lidar", "cka_next")} == {
        "layer 2: the vectors of all 8 prompts are equal"
    }
    # all but the CKA with layer 2
    assert (reduced.status[0, ofvectors] == Status.OK).sum() == sum(ofvectors) - 1


def test_a_single_prompt_has_no_standard_error():
    reducer = Reducer(resolve(["curvature"]), [0], 1)
    reducer.add(0, torch.tensor([0]), torch.eye(4)[None], torch.ones(1, 4), torch.ones(1, 4))
    reduced = reducer.finish()
    assert reduced.values[0, 0] == pytest.approx(2 * math.pi / 3)
    assert math.isnan(reduced.stderr[0, 0])
    assert reduced.status[0, 0] == Status.OK


def test_views_are_needed_only_if_a_metric_compares_them():
    assert Reducer(resolve(["curvature", "infonce"]), [0], 2).views == 2
    assert Reducer(resolve(["curvature", "anisotropy"]), [0], 2).views == 1
    wanted = {"infonce": 2, "lidar": 4, "lidar(views=3)": 3, "cka_next": 1}
    assert {name: Reducer(resolve([name]), [0], 2).views for name in wanted} == wanted


def test_no_graph_is_kept(states):
    batch = states[0, 0].requires_grad_()
    reducer = Reducer(resolve(["prompt_entropy"]), [0], PROMPTS)
    reducer.add(0, torch.arange(PROMPTS), batch, MASK, pool(batch, MASK))
    assert math.isfinite(reducer.finish().values[0, 0])


def mean_length(vectors: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(vectors, dim=1).mean()


def test_a_custom_metric_can_be_sent_to_a_worker(states, monkeypatch):
    monkeypatch.setitem(sys.modules, "my_metrics", sys.modules[__name__])
    mine = Metric("norm", "pooled", "1", "mean length", "my_metrics:mean_length")
    chosen = pickle.loads(pickle.dumps(resolve([mine, "curvature(k=2)"])))
    reduced = reduce(states, chosen)
    assert reduced.metrics == ("norm", "curvature(k=2)")
    expected = [mean_length(pool(states[layer, 0], MASK)).item() for layer in LAYERS]
    np.testing.assert_allclose(reduced.values[:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_widened_vectors_keep_the_floor_of_the_states(dtype):
    # of rank 3
    rows = torch.randn(64, 3, generator=torch.Generator().manual_seed(0)) @ torch.randn(3, 32)
    half, mask, index = (
        rows.to(getattr(torch, dtype)),
        torch.ones(64, 1, dtype=torch.bool),
        torch.arange(64),
    )
    direct = resolve(["alpha_req"])[0].load()
    reducer = Reducer(resolve(["alpha_req", "intrinsic_dimension"]), [0], 64)
    reducer.add(0, index, half[:, None], mask, half.float())  # as a mean over tokens is
    assert reducer.finish().values[0, 0] == direct(half).item()
    assert direct(half).item() == pytest.approx(direct(rows).item(), rel=0.02)
    assert direct(half.float()).item() > 2 * direct(rows).item()  # what the rounding would add
