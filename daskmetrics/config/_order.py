"""Steps of a suite whose weights lie out of order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

FAR = 1.2  #: a step whose distances to both neighbours exceed theirs by this factor lies out of order
AGAINST = 0.5  #: share of a squared distance by which the way must become shorter if two steps are exchanged

Floats = NDArray[np.float64]


def out_of_order(steps: Sequence[str], samples: Sequence[NDArray[np.float32]]) -> list[str]:
    """A warning, with the distances, for each step whose weights do not lie between those before and after it.

    Training moves weights on, so the change from a step to a later one points where the change of their neighbours
    points. With w the samples of the weights and n(k) = w(k-1) + w(k+1) there are two rules.

    - Steps p and q seem to be exchanged if (w(q) - w(p)) (n(q) - n(p)) < -`AGAINST` |w(q) - w(p)|^2: exchanging them
      shortens the sum of the squared distances between following steps by four times that. If they follow each other,
      neither counts among the neighbours of the other. The clearest pair is exchanged first, then the others are
      examined again. Fluctuations of any size add nothing on average, as they are independent of the neighbours.
    - Step k lies out of order if its distances to k-1 and to k+1 both exceed `FAR` times their own distance. For
      fluctuations alone, all distances are equal.

    The first and the last step have one neighbour only, and are not examined.

    Examples
    --------
    >>> places = [np.full(4, place, np.float32) for place in (0, 1, 6, 2, 3)]
    >>> for warning in out_of_order(["step0", "step1", "step2", "step4", "step8"], places):
    ...     print(warning)
    step2 lies out of order: its weights are 10 from those of step1 and 8 from those of step4, which are 2 apart
    """
    if len(samples) < 3 or len({len(each) for each in samples}) > 1:
        return []
    weights = np.array(samples, dtype=np.float64)
    weights -= weights.mean(axis=0)
    gram, order, exchanged = weights @ weights.T, np.arange(len(steps)), list[tuple[int, int]]()
    squares = np.maximum(np.diag(gram)[:, None] + np.diag(gram) - 2 * gram, 0.0)
    while len(exchanged) < len(steps) and (pair := _exchanged(gram[np.ix_(order, order)])):
        order[[*pair]] = order[[*reversed(pair)]]
        exchanged.append(pair)
    in_pairs = {k for pair in exchanged for k in pair}
    return [*_pairs(steps, np.sqrt(squares), exchanged), *_far(steps, np.sqrt(squares[np.ix_(order, order)]), in_pairs)]


def _exchanged(gram: Floats) -> tuple[int, int] | None:
    """The two places whose exchange shortens the way most clearly, if there are any; from all inner products."""
    inner = gram[1:-1, 1:-1]
    by_neighbours = gram[1:-1, :-2] + gram[1:-1, 2:]
    size, own = np.diag(inner), np.diag(by_neighbours)
    squares = size[:, None] + size - 2 * inner
    along = own[:, None] + own - by_neighbours - by_neighbours.T
    follows = np.abs(np.subtract.outer(np.arange(len(inner)), np.arange(len(inner)))) == 1
    along = np.triu(along + follows * squares + AGAINST * squares, 1)
    p, q = np.unravel_index(int(np.argmin(along)), along.shape)
    return (int(p) + 1, int(q) + 1) if along[p, q] < -1e-9 * size.max() else None


def _pairs(steps: Sequence[str], apart: Floats, exchanged: Sequence[tuple[int, int]]) -> Iterator[str]:
    for p, q in exchanged:
        yield (
            f"{steps[p]} and {steps[q]} seem to be exchanged: the weights of {steps[p - 1]} are {apart[p - 1, p]:.3g} "
            f"from the first and {apart[p - 1, q]:.3g} from the second, those of {steps[q + 1]} {apart[q + 1, p]:.3g} "
            f"and {apart[q + 1, q]:.3g}"
        )


def _far(steps: Sequence[str], apart: Floats, known: set[int]) -> Iterator[str]:
    for k in range(1, len(steps) - 1):
        before, after, between = apart[k - 1, k], apart[k, k + 1], apart[k - 1, k + 1]
        if min(before, after) > FAR * between and k not in known:
            yield (
                f"{steps[k]} lies out of order: its weights are {before:.3g} from those of {steps[k - 1]} and "
                f"{after:.3g} from those of {steps[k + 1]}, which are {between:.3g} apart"
            )
