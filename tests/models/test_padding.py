"""A text's vector depends on that text alone: not on its neighbours, their order, or the side of
the padding.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.config import Protocol
from daskmetrics.models import LoadedModel, plan_batches

from .architectures import at, build, encode

PADDED = ("gpt2", "opt", "bert", "roberta", "gpt_neox", "bloom", "t5", "bart")
WORDS = st.lists(
    st.sampled_from(["a", "layer", "reads", "tokens", "3", "times", ",", "not", "twice"]),
    max_size=12,
)


@pytest.fixture(scope="module")
def models(tmp_path_factory, minilm):
    """Models of each kind that pad on the left and on the right."""
    folder = tmp_path_factory.mktemp("kinds")
    return {
        kind: [
            LoadedModel(at(place), Protocol(padding=side, state_norm="raw"))
            for side in ("left", "right")
        ]
        for kind in PADDED
        for place in [build(kind, folder / kind, minilm)]
    }


@settings(max_examples=15)
@given(
    texts=st.lists(WORDS.map(" ".join), min_size=2, max_size=6, unique=True),
    order=st.randoms(use_true_random=False),
    pooling=st.sampled_from(["mean", "last", "cls"]),
)
@pytest.mark.parametrize("kind", PADDED)
def test_a_vector_depends_on_its_text_alone(models, kind, texts, order, pooling):
    left, right = models[kind]
    alone = np.concatenate([encode(right, [text], range(4), pooling) for text in texts], axis=1)
    shuffled = order.sample(range(len(texts)), len(texts))
    for model in (left, right):
        vectors = np.empty_like(alone)
        vectors[:, shuffled] = encode(model, [texts[i] for i in shuffled], range(4), pooling)
        np.testing.assert_allclose(vectors, alone, atol=1e-5 * abs(alone).max())


@given(st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(1, 200))
def test_batches_of_equal_length_have_no_padding(lengths, budget):
    batches = plan_batches(lengths, budget, equal=True)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len({lengths[row] for row in batch}) == 1
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= budget
