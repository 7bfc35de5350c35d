from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.readouts import Readout
from daskmetrics.core.vectors import read_out


def test_layers_are_averaged_or_put_one_after_the_other_and_dimensions_left_out():
    generator = np.random.default_rng(0)
    pooled = {layer: generator.normal(size=(4, 3)).astype(np.float32) for layer in range(4)}

    def read(name: str, layer: int) -> np.ndarray:
        return read_out(Readout.parse(name), pooled, layer)

    mean = np.mean([pooled[1], pooled[2], pooled[3]], axis=0)
    np.testing.assert_allclose(read("mean1-3", 3), mean, rtol=1e-6)
    both = np.hstack([pooled[0], pooled[2]])
    assert np.array_equal(read("concat0+2", 2), both)
    assert np.array_equal(read("concat0+2,5d", 2), both[:, :5])
    assert np.array_equal(read("last", 2), pooled[2])
    with pytest.raises(UndefinedError, match="'4d' needs more than 3 dimensions"):
        read("4d", 2)
