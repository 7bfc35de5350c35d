from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.fitted import fit, joined
from daskmetrics.core.readouts import Readout


def vectors(texts: int, width: int, seed: int = 0) -> np.ndarray:
    """Random vectors whose directions vary unequally, away from zero."""
    generator = np.random.default_rng(seed)
    mixed = generator.normal(size=(texts, width)) @ generator.normal(size=(width, width))
    return (mixed + 3 * generator.normal(size=width)).astype(np.float32)


@pytest.mark.parametrize("whitening", [False, True])
def test_principal_components_are_those_of_scikit_learn(whitening):
    from sklearn.decomposition import PCA

    corpus, texts = vectors(200, 24), vectors(50, 24, seed=1)
    fitted = fit(Readout(dimensions="pca9", whitening=whitening), corpus)
    theirs = PCA(9, whiten=whitening, svd_solver="full").fit(corpus.astype(np.float64))
    np.testing.assert_allclose(
        fitted(texts), theirs.transform(texts), rtol=1e-5, atol=1e-5 * np.abs(texts).max()
    )


@pytest.mark.parametrize("dimensions", ["", "7"])
def test_whitened_vectors_of_the_corpus_have_the_identity_as_covariance(dimensions):
    from sklearn.decomposition import PCA

    corpus, texts = vectors(300, 12), vectors(20, 12, seed=1)
    readout = Readout(dimensions=dimensions, whitening=True)
    fitted, kept = fit(readout, corpus), readout.kept or 12
    np.testing.assert_allclose(np.cov(fitted(corpus).T), np.eye(kept), atol=1e-4)
    theirs = PCA(whiten=True, svd_solver="full").fit(corpus[:, :kept].astype(np.float64))
    np.testing.assert_allclose(
        fitted(texts), theirs.transform(texts[:, :kept]), rtol=1e-4, atol=1e-4
    )


def test_int8_is_the_nearest_of_256_levels_between_the_smallest_and_the_largest_value_of_the_corpus():
    corpus, texts = vectors(100, 6), vectors(40, 6, seed=1)
    fitted = fit(Readout(storage="int8"), corpus)
    low, high = corpus.min(axis=0), corpus.max(axis=0)
    stored, seen = fitted.stored(texts), fitted(texts)
    assert stored.dtype == np.int8
    assert fitted.stored(low[None]).tolist() == [[-128] * 6]
    assert fitted.stored(high[None]).tolist() == [[127] * 6]
    inside = (texts >= low) & (texts <= high)
    half_a_step = (high - low) / 255 / 2
    assert (np.abs(seen - texts) <= half_a_step * 1.001 + 1e-6)[inside].all()
    assert (seen >= low - 1e-4).all()  # beyond the corpus's values they are clipped
    assert (seen <= high + 1e-4).all()


def test_a_dimension_that_is_constant_in_the_corpus_stays_constant_as_int8():
    corpus = vectors(20, 3)
    corpus[:, 1] = 0.25
    assert np.unique(
        fit(Readout(storage="int8"), corpus)(vectors(9, 3, seed=1))[:, 1]
    ).tolist() == [0.25]


def test_the_cosine_of_binary_vectors_follows_their_hamming_distance():
    from sentence_transformers.util.quantization import quantize_embeddings

    given = vectors(12, 20) - 2
    fitted = fit(Readout(storage="binary"))
    stored, seen = fitted.stored(given), fitted(given)
    assert np.array_equal(stored, quantize_embeddings(given, "ubinary"))
    assert set(np.unique(seen)) == {-1.0, 1.0}
    hamming = (seen[:, None] != seen).sum(axis=2)
    np.testing.assert_allclose(seen @ seen.T / 20, 1 - 2 * hamming / 20)


def test_float16_rounds_and_does_not_hide_an_overflow():
    seen = fit(Readout(storage="float16"))(np.array([[0.1, 1e6]], np.float32))
    assert seen[0, 0] == np.float32(np.float16(0.1))
    assert np.isinf(seen[0, 1])


def test_layers_are_averaged_or_put_one_after_the_other():
    pooled = {layer: vectors(4, 3, seed=layer) for layer in range(4)}
    np.testing.assert_allclose(
        joined(Readout(layers="mean1-3"), pooled, 3),
        np.mean([pooled[1], pooled[2], pooled[3]], axis=0),
        rtol=1e-6,
    )
    assert np.array_equal(
        joined(Readout(layers="concat0+2"), pooled, 2), np.hstack([pooled[0], pooled[2]])
    )
    assert joined(Readout("last"), pooled, 2) is pooled[2]


def test_a_corpus_that_varies_in_too_few_directions_gives_no_components():
    corpus = np.repeat(vectors(3, 8), 10, axis=0)
    with pytest.raises(UndefinedError, match=r"needs 5 components.*vary in 2 directions"):
        fit(Readout(dimensions="pca5"), corpus)
