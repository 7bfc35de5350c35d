"""The metrics of this package: definitions, sources, costs and parameters in one table, and how many
operations they take; no torch.

In formulas Z has n rows (tokens of a prompt, or prompts) and D columns, σ are its singular values,
λ = σ², p = λ / Σλ; in costs P is prompts, T tokens of a prompt, m the smaller of rows and D, q
views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points

from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.text import parse_call
from daskmetrics.core.user_code import load_object
from daskmetrics.metrics._metric import Metric, Parameter, Takes, constant

_ALPHA = Parameter("alpha", 1.0, above=0)
_CENTRED = Parameter("centred", True)
_VARIANT = Parameter("variant", "corrected", ("corrected", "paper"))
_ENTROPY = (
    _ALPHA,
    _CENTRED,
    Parameter("norm", "none", ("none", "logN", "logD", "logNlogD", "maxEntropy")),
    _VARIANT,
)
_SPECTRUM = "2 P D m + 4 m³/3, shared"
# metrics that can leave out each prompt in turn at nearly no cost
_JACKKNIFE = ("anisotropy", "uniformity", "alignment", "infonce")


def _metric(
    family: str,
    takes: Takes,
    name: str,
    units: str,
    description: str,
    formula: str,
    source: str,
    *parameters: Parameter,
    cost: str,
    shared: bool = False,
) -> Metric:
    return Metric(
        name,
        takes,
        units,
        description,
        f"daskmetrics.metrics.{name}:{name}",
        family,
        formula,
        source,
        cost,
        parameters,
        (),
        shared,
        name in _JACKKNIFE,
    )


_tokens = partial(_metric, "tokens", "tokens")
_spectral = partial(_metric, "spectral", "pooled", cost=_SPECTRUM, shared=True)
_geometry = partial(_metric, "geometry", "pooled")
_views = partial(_metric, "views", "views")

# fmt: off
_ALL = (
    _tokens("prompt_entropy", "nats", "how many directions the tokens of a prompt spread over",
            "−Σ p ln p, tokens centred, then unit rows", "Wei et al. 2024",
            *_ENTROPY, Parameter("first", True), cost="P (2 T D m + 4 m³/3)", shared=True),
    _spectral("dataset_entropy", "nats", "how many directions the prompts spread over",
              "−Σ p ln p, unit rows, then centred", "Skean et al. 2025", *_ENTROPY),
    _spectral("effective_rank", "dimensions", "number of dimensions the prompts effectively use",
              "exp H(σ / Σσ), centred; σ not squared", "Roy & Vetterli 2007", _CENTRED, Parameter("squared", False)),
    _tokens("curvature", "radians", "mean turn of the path from token to token",
            "mean ∠(vᵢ, vᵢ₊ₖ), vᵢ = xᵢ₊₁ − xᵢ ≠ 0", "Hosseini & Fedorenko 2023",
            Parameter("k", 1, least=1), _VARIANT, cost="8 P T D"),
    _geometry("anisotropy", "cosine", "mean cosine between two different prompts",
              "(‖Σ ẑ‖² − P) / (P (P − 1))", "Ethayarajh 2019", cost="P D"),
    _views("infonce", "nats", "how hard it is to find a prompt's other view among all prompts",
           "NT-Xent loss of unit rows, τ = 0.1", "van den Oord et al. 2018; Chen et al. 2020",
           Parameter("temperature", 0.1, above=0), Parameter("centred", False), _VARIANT, cost="8 P² D"),
    _spectral("rankme", "dimensions", "number of dimensions the prompts effectively use, their mean included",
              "exp H(σ / Σσ + ε), not centred", "Garrido et al. 2023", Parameter("eps", 1e-7, least=0)),
    _spectral("participation_ratio", "dimensions", "number of dimensions that share the variance of the prompts",
              "(Σλ)² / Σλ², centred", "Gao et al. 2017", _CENTRED),
    _spectral("stable_rank", "dimensions", "sum of the squared singular values, relative to the largest one",
              "‖Z‖²_F / σ₁², not centred", "Rudelson & Vershynin 2007", Parameter("centred", False)),
    _spectral("nesum", "dimensions", "how evenly the variance of the prompts is spread",
              "Σλ / λ₁, centred", "He & Ozay 2022"),
    _spectral("alpha_req", "exponent", "how fast the spectrum of the prompts decays",
              "−slope of ln λᵢ against ln i, centred", "Agrawal et al. 2022", _CENTRED),
    _spectral("logdet_covariance", "nats", "volume that the prompts fill",
              "ln det(C + ε I), C the covariance (1/P)", "Zhouyin & Liu 2021", Parameter("ridge", 1e-6, above=0)),
    _spectral("spectral_norm", "squared states", "variance of the prompts along their first principal direction",
              "λ₁(C), C the covariance (1/P)", "textbook"),
    _geometry("uniformity", "nats", "how evenly the prompts' directions cover the sphere",
              "ln mean exp(−t ‖ẑᵢ − ẑⱼ‖²), i ≠ j, t = 2", "Wang & Isola 2020",
              Parameter("t", 2.0, above=0), cost="2 P² D"),
    _geometry("intrinsic_dimension", "dimensions", "dimension of the manifold that the prompts lie on",
              "slope of −ln(1 − F(μ)) against ln μ, μ = r₂/r₁", "Facco et al. 2017",
              Parameter("fit", "line", ("line", "likelihood")), Parameter("discarded", 0.1, least=0),
              cost="2 P² D", shared=True),
    _views("alignment", "squared distance", "distance between the two views of a prompt",
           "mean ‖ẑ − ẑ⁺‖²", "Wang & Isola 2020", Parameter("power", 2.0, above=0), cost="2 P D"),
    _views("lidar", "dimensions", "number of dimensions in which prompts differ more than their views do",
           "exp H(eig(S_w^−½ S_b S_w^−½)), unit rows", "Thilak et al. 2024",
           Parameter("views", 4, least=2), Parameter("delta", 1e-4, least=0), Parameter("relative", False),
           Parameter("unit", True), Parameter("log", False), cost="2 P q D² + D³/3 + P D²"),
    _views("dime", "nats", "information that two views of the prompts share",
           "mean over Π of S(K_A ∘ Π K_B Πᵀ) − S(K_A ∘ K_B)", "Skean et al. 2023",
           Parameter("permutations", 10, least=1), _ALPHA, Parameter("most", 1024, least=2),
           Parameter("seed", 0, least=0), _VARIANT, cost="11 · 4 P³/3, P ≤ 1024"),
    _metric("layers", "layers", "cka_next", "1", "how little the next layer changes",
            "‖XᵀY‖²_F / (‖XᵀX‖_F ‖YᵀY‖_F), centred", "Kornblith et al. 2019",
            Parameter("debiased", False), cost="2 P² D or 2 P D²"),
)
# fmt: on

#: of this package
CATALOGUE: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
#: entry points with which other packages add metrics; each names a `Metric`
GROUP = "daskmetrics.metrics"


def catalogue() -> Mapping[str, Metric]:
    """All metrics by name: of this package, then of plug-ins.

    Returns
    -------
    mapping of str to Metric

    Raises
    ------
    ConfigError
        If a plug-in cannot be loaded, is not a `Metric`, or has a name that exists already.

    Examples
    --------
    >>> list(catalogue())[:3]
    ['prompt_entropy', 'dataset_entropy', 'effective_rank']
    """
    metrics = dict(CATALOGUE)
    for point in entry_points(group=GROUP):
        metric = _loaded(f"Metric plug-in '{point.value}'", point.value)
        if metric.name in metrics:
            raise ConfigError(
                f"Metric '{metric.name}' of '{point.value}' exists already. Rename it, or uninstall"
                " one."
            )
        metrics[metric.name] = metric
    return metrics


def families(known: Iterable[Metric]) -> Mapping[str, tuple[Metric, ...]]:
    """Metrics by family, and ``all`` of them.

    Examples
    --------
    >>> [metric.name for metric in families(catalogue().values())["tokens"]]
    ['prompt_entropy', 'curvature']
    """
    groups: dict[str, tuple[Metric, ...]] = {"all": tuple(known)}
    for metric in groups["all"]:
        groups[metric.family] = (*groups.get(metric.family, ()), metric)
    return groups


def resolve(names: Sequence[str | Metric]) -> tuple[Metric, ...]:
    """The metrics that a configuration names, in its order, each once.

    Parameters
    ----------
    names : sequence of str or Metric
        Names in the catalogue, calls such as ``curvature(k=2)``, families, ``all`` for everything
        with its defaults, places of a `Metric` such as ``mypackage.metrics:NORM``, or a `Metric`
        itself.

    Raises
    ------
    ConfigError
        If a name or a parameter is unknown, or two metrics have one name.

    Examples
    --------
    >>> [metric.name for metric in resolve(["curvature(k=2)", "infonce(temperature=0.1)", "curvature(k=2)"])]
    ['curvature(k=2)', 'infonce']
    """
    metrics = catalogue()
    chosen: dict[str, Metric] = {}
    for name in names:
        for metric in _named(name, metrics):
            if chosen.setdefault(metric.name, metric) != metric:
                raise ConfigError(
                    f"Two different metrics have the name '{metric.name}'. Rename one."
                )
    return tuple(chosen.values())


def _named(name: str | Metric, metrics: Mapping[str, Metric]) -> Sequence[Metric]:
    if isinstance(name, Metric):
        return (name,)
    if "(" in name or ":" not in name:
        word, options = parse_call(name)
        settings = {key: constant(value) for key, value in options.items()}
        groups = families(metrics.values())
        if word in metrics:
            return (metrics[word].with_settings(settings),)
        if set("()=") & set(word):  # a comma inside [ ] splits an entry of YAML without quotes
            raise ConfigError(
                f"'{name}' is not a metric: write NAME or NAME(PARAMETER=VALUE, ...) with plain "
                "values, and put it in quotes inside a YAML list in brackets."
            )
        if word in groups and not settings:
            return groups[word]
        raise unknown("metric", word, (*groups, *metrics))
    return (_loaded(f"Metric '{name}'", name),)


def _loaded(subject: str, path: str) -> Metric:
    metric = load_object(subject, path)
    if not isinstance(metric, Metric):
        raise ConfigError(
            f"{subject} must be a daskmetrics.metrics.Metric, but is a {type(metric).__name__}."
        )
    return metric


# --- how many operations metrics take, for estimates before a run

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
    """Of the smaller Gram matrix of rows, and of its eigenvalues.

    Golub & Van Loan, *Matrix Computations*, 8.3.
    """
    smaller = min(rows, width)
    return 2 * rows * width * smaller + 4 * smaller**3 / 3


def _is_centred(metric: Metric) -> bool:
    """Whether the metric subtracts the mean; all but RankMe do by default."""
    return bool(metric.values.get("centred", "rankme" not in metric.function))
