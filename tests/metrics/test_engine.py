"""The Reducer: the same numbers as direct calls, whatever the order, and a reason wherever there is
none.
"""

import math
import pickle
import sys

import numpy as np
import pytest
import torch

from daskmetrics.domain.results import Status
from daskmetrics.metrics import Metric, resolve
from daskmetrics.metrics import _spectra as spectra
from daskmetrics.metrics._spectra import eigenvalues
from daskmetrics.metrics.alpha_req import alpha_req
from daskmetrics.metrics.engine import Reduced, Reducer
from daskmetrics.metrics.intrinsic_dimension import intrinsic_dimension
from daskmetrics.metrics.registry import CATALOGUE

LAYERS, PROMPTS, TOKENS, WIDTH = (0, 2, 5), 8, 6, 4
LENGTHS = torch.tensor([6, 3, 1, 5, 6, 4, 2, 6])
MASK = torch.arange(TOKENS) < LENGTHS[:, None]
BATCHES = [
    (layer, rows, view)
    for layer in LAYERS
    for rows in ([0, 3, 5], [1, 2], [4, 6, 7])
    for view in range(4)
]


def random_states() -> dict[tuple[int, int], torch.Tensor]:
    """Hidden states (P, T, D) of every (layer, view)."""
    rng = np.random.default_rng(0)
    return {
        (layer, view): torch.from_numpy(rng.normal(size=(PROMPTS, TOKENS, WIDTH))).float()
        for layer in LAYERS
        for view in range(4)
    }


@pytest.fixture
def states() -> dict[tuple[int, int], torch.Tensor]:
    """Those which a test may change."""
    return random_states()


def pool(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return states.where(mask[..., None], 0).sum(1) / mask.sum(1, keepdim=True)


def reduce(states: dict, names: list[str] = ("all",), batches: list = BATCHES) -> Reduced:
    reducer = Reducer(resolve(names), LAYERS, PROMPTS)
    for layer, rows, view in batches:
        if view < reducer.views:
            batch, mask = states[layer, view][rows], MASK[rows]
            reducer.add(layer, torch.tensor(rows), batch, mask, pool(batch, mask), view)
    return reducer.finish()


@pytest.fixture(scope="module")
def clean() -> Reduced:
    """All metrics of the states that no test has changed."""
    return reduce(random_states())


@pytest.mark.parametrize("name", CATALOGUE)
def test_agrees_with_direct_calls(states, clean, name):
    metric = CATALOGUE[name]
    assert clean.metrics == tuple(CATALOGUE)
    for layer, deeper in zip(LAYERS, (2, 5, None), strict=True):
        where = LAYERS.index(layer), list(CATALOGUE).index(name)
        arrays = [pool(states[layer, view], MASK) for view in range(metric.views)]
        if metric.takes == "tokens":
            values = metric.load()(states[layer, 0], MASK).double().numpy()
            values = values[~np.isnan(values)]
            assert clean.values[where] == pytest.approx(values.mean())
            error = values.std(ddof=1) / math.sqrt(len(values))
            assert clean.stderr[where] == pytest.approx(error)
        elif metric.takes == "layers" and deeper is None:
            assert clean.status[where] == Status.NOT_APPLICABLE
            assert math.isnan(clean.values[where]) and clean.reasons == {}
        else:
            if metric.takes == "layers":
                arrays.append(pool(states[deeper, 0], MASK))
            assert clean.values[where] == pytest.approx(metric.load()(*arrays).item())


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
    settings = ("", "(norm=maxEntropy)", "(alpha=0.5)")
    reduce(states, [f"prompt_entropy{setting}" for setting in settings])
    assert len(solved) == len(BATCHES) // 4


@pytest.mark.parametrize("seed", range(3))
def test_order_of_adding_changes_no_bit(states, clean, seed):
    order = np.random.default_rng(seed).permutation(len(BATCHES))
    shuffled = reduce(states, batches=[BATCHES[i] for i in order])
    for field in ("values", "stderr", "status"):
        np.testing.assert_array_equal(getattr(shuffled, field), getattr(clean, field))


def test_a_layer_that_is_not_finite_changes_no_others(states, clean):
    states[2, 0][3, 4] = torch.inf
    reduced = reduce(states)
    assert np.isnan(reduced.values[1]).all()
    assert (reduced.status[1] == Status.NAN).all()
    assert set(reduced.reasons) == {(2, name) for name in CATALOGUE} | {(0, "cka_next")}
    # it names the layer to blame
    assert reduced.reasons[0, "cka_next"] == reduced.reasons[2, "cka_next"]
    assert reduced.reasons[2, "curvature"] == "layer 2: states are not finite for 1 of 8 prompts"
    others = [name != "cka_next" for name in CATALOGUE]
    for layer in (0, 2):
        np.testing.assert_array_equal(reduced.values[layer, others], clean.values[layer, others])


def reduce_one_layer(names: list[str], states: torch.Tensor, vectors: torch.Tensor) -> Reduced:
    """Metrics of states of which every token counts."""
    reducer = Reducer(resolve(names), [0], len(states))
    mask = torch.ones(states.shape[:2], dtype=torch.bool)
    reducer.add(0, torch.arange(len(states)), states, mask, vectors)
    return reducer.finish()


ONE_TOKEN, SAME = torch.ones(3, 1, 4), torch.ones(3, 4)


@pytest.mark.parametrize(
    ("name", "vectors", "reason"),
    [
        ("effective_rank", torch.nan * SAME, "states are not finite for 3 of 3 prompts"),
        ("effective_rank", SAME, "the vectors of all 3 prompts are equal"),
        ("curvature", SAME, "curvature is not defined for these states"),
    ],
)
def test_a_value_that_is_missing_has_a_reason(name, vectors, reason):
    reduced = reduce_one_layer([name], ONE_TOKEN, vectors)
    assert np.isnan(reduced.values).all()
    assert reduced.reasons == {(0, name): f"layer 0: {reason}"}


def test_prompts_that_were_not_added_are_counted_as_missing(states):
    reasons = reduce(states, batches=[(0, [0, 1, 2], 0), (2, list(range(8)), 0)]).reasons
    assert reasons[0, "curvature"] == "layer 0: states are missing for 5 of 8 prompts"
    assert reasons[2, "lidar"] == reasons[2, "infonce"]
    assert "second view are missing for 8 of 8 prompts (views drop" in reasons[2, "infonce"]
    assert reasons[5, "anisotropy"] == "layer 5: no states were added"
    assert (2, "curvature") not in reasons


@pytest.mark.parametrize("prompts", [1, 3])
def test_tokens_may_differ_where_vectors_are_equal(prompts):
    states = torch.eye(4).expand(prompts, 4, 4)
    reduced = reduce_one_layer(["curvature"], states, torch.ones(prompts, 4))
    assert reduced.values[0, 0] == pytest.approx(2 * math.pi / 3)
    assert math.isnan(reduced.stderr[0, 0]) == (prompts == 1)
    assert reduced.status[0, 0] == Status.OK


def test_views_are_needed_only_if_a_metric_compares_them():
    wanted = {"infonce": 2, "lidar": 4, "lidar(views=3)": 3, "cka_next": 1}
    assert {name: Reducer(resolve([name]), [0], 2).views for name in wanted} == wanted


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
    half = rows.to(getattr(torch, dtype))
    mask = torch.ones(64, 1, dtype=torch.bool)
    direct = resolve(["alpha_req"])[0].load()
    reducer = Reducer(resolve(["alpha_req", "intrinsic_dimension"]), [0], 64)
    reducer.add(0, torch.arange(64), half[:, None], mask, half.float())  # as a mean over tokens is
    assert reducer.finish().values[0, 0] == direct(half).item()
    assert direct(half).item() == pytest.approx(direct(rows).item(), rel=0.02)
    assert direct(half.float()).item() > 2 * direct(rows).item()  # what the rounding would add


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_prompts_on_a_line_have_no_decay(dtype):
    generator = torch.Generator().manual_seed(0)
    place, direction = (torch.randn(n, generator=generator) for n in (64, 48))
    vectors = torch.outer(place, direction).to(dtype)
    if dtype == torch.float32:  # as a forward pass computes it
        vectors *= 1 + 3e-7 * torch.randn(64, 48, generator=generator)
    assert alpha_req(vectors).isnan()
    reducer = Reducer(resolve(["alpha_req"]), [0], 64)
    mask = torch.ones(64, 1, dtype=torch.bool)
    reducer.add(0, torch.arange(64), vectors[:, None], mask, vectors)
    reduced = reducer.finish()
    assert reduced.status[0, 0] == Status.NAN and reduced.reasons


def test_vectors_that_differ_by_rounding_count_once():
    generator = torch.Generator().manual_seed(0)
    distinct = torch.randn(60, 5, generator=generator) @ torch.randn(5, 40, generator=generator) + 3
    copies = distinct * (1 + 1e-7 * torch.randn(60, 40, generator=generator))
    once = intrinsic_dimension(distinct)
    assert abs(intrinsic_dimension(torch.cat([distinct, copies])) / once - 1) < 1e-5
