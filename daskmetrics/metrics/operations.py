"""How many operations metrics take, for estimates before a run; no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from daskmetrics.metrics._metric import Metric

_OWN: Mapping[
    str, Callable[[float, float, int], float]
] = {  # of P prompts, D dimensions and q views
    "anisotropy": lambda p, d, q: p * d,
    "alignment": lambda p, d, q: 2 * p * d,
    "infonce": lambda p, d, q: 8 * p**2 * d,
    "uniformity": lambda p, d, q: 2 * p**2 * d,
    "intrinsic_dimension": lambda p, d, q: 2 * p**2 * d,
    "lidar": lambda p, d, q: 2 * p * q * d**2 + d**3 / 3 + p * d**2,
    "dime": lambda p, d, q: 11 * 4 * min(p, 1024) ** 3 / 3,
    "cka_next": lambda p, d, q: 2 * p * d * min(p, d),
}


def operations(metrics: Iterable[Metric], prompts: int, width: int, length: float) -> float:
    """Floating-point operations of these metrics for one layer, as `Metric.cost` states them.

    A spectrum that several metrics share counts once. Metrics of other packages are not counted.

    Parameters
    ----------
    metrics : iterable of Metric
    prompts : int
    width : int
        Of a state.
    length : float
        Tokens of a prompt on average.

    Examples
    --------
    >>> from daskmetrics.metrics import resolve
    >>> one, both = resolve(["effective_rank"]), resolve(["effective_rank", "alpha_req"])
    >>> operations(one, 256, 512, 40.0) == operations(both, 256, 512, 40.0)
    True
    """
    spectra: dict[tuple[str, bool], float] = {}  # each counts once; in order, as sums of floats are
    total = 0.0
    for metric in metrics:
        name = metric.function.rpartition(":")[2]
        if name in _OWN:
            total += _OWN[name](float(prompts), float(width), metric.views)
        elif name == "curvature":
            total += 8 * prompts * length * width
        elif name == "prompt_entropy":
            spectra["tokens", _is_centred(metric)] = prompts * _spectrum(length, width)
        elif metric.spectral:
            rows = "directions" if name == "dataset_entropy" else "prompts"
            spectra[rows, _is_centred(metric)] = _spectrum(prompts, width)
    return total + sum(spectra.values())


def _spectrum(rows: float, width: int) -> float:
    """Of the smaller Gram matrix of rows, and of its eigenvalues (Golub & Van Loan, *Matrix
    Computations*, 8.3).
    """
    smaller = min(rows, width)
    return 2 * rows * width * smaller + 4 * smaller**3 / 3


def _is_centred(metric: Metric) -> bool:
    """Whether the metric subtracts the mean: as its parameter says, or else all but RankMe."""
    return bool(metric.values.get("centred", "rankme" not in metric.function))
