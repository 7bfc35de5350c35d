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


def test_principal_components_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    corpus, texts = vectors(200, 24), vectors(50, 24, seed=1)
    fitted = fit(Readout(dimensions="pca9"), corpus)
    theirs = PCA(9, svd_solver="full").fit(corpus.astype(np.float64))
    np.testing.assert_allclose(
        fitted(texts), theirs.transform(texts), rtol=1e-5, atol=1e-5 * np.abs(texts).max()
    )


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
