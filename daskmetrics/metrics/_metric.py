"""What a metric is: a name, an input, a unit, parameters, and where the function lies that computes it; no torch."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from daskmetrics.core.errors import ConfigError, unknown

Takes = Literal["tokens", "pooled", "views", "layers"]
Value: TypeAlias = bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One keyword of a metric: its default, which also fixes its type, and the values that make sense.

    Parameters
    ----------
    name : str
    default : bool, int, float or str
    choices : tuple of str
        Of a text: the words it may be.
    least : float
        Of a number: the smallest it may be.
    above : float
        Of a number: what it must be greater than.

    Examples
    --------
    >>> Parameter("k", 1, least=1).checked(2, "curvature")
    2
    """

    name: str
    default: Value
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    above: float = -math.inf

    def checked(self, value: Value, metric: str) -> Value:
        """The value in this parameter's type.

        Raises
        ------
        ConfigError
            If it is of another type, no choice, or out of range.
        """
        if self.choices and isinstance(value, str):
            if value not in self.choices:
                raise unknown(f"{self.name} of metric '{metric}'", value, self.choices)
            return value
        if type(self.default) is float and type(value) is int:
            value = float(value)
        if type(value) is not type(self.default):
            raise ConfigError(f"Metric '{metric}': {self.name} must be {self.wanted}, got {text(value)}.")
        if not isinstance(value, str) and not (math.isfinite(value) and value >= self.least and value > self.above):
            raise ConfigError(f"Metric '{metric}': {self.name} must be {self.wanted}, got {text(value)}.")
        return value

    @property
    def wanted(self) -> str:
        """What a value must be, in words."""
        if isinstance(self.default, str):
            return " or ".join(self.choices)
        if isinstance(self.default, bool):
            return "true or false"
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        bounds = [f"of at least {self.least:g}"] * math.isfinite(self.least)
        return " ".join([kind, *bounds, *[f"above {self.above:g}"] * math.isfinite(self.above)])

    def __str__(self) -> str:
        return f"{self.name}={text(self.default)}"


@dataclass(frozen=True)
class Metric:
    """A label-free property of a layer, and where the function that computes it lies.

    Parameters
    ----------
    name : str
        As in the configuration and the store. With parameters it is the text of the call, ``curvature(k=2)``.
    takes : {"tokens", "pooled", "views", "layers"}
        What the function gets; the shapes stand in `daskmetrics.metrics`.
    units : str
    description : str
        One line.
    function : str
        ``package.module:function``, imported only by `load`, on a worker.
    family : str
        Several metrics can be asked for by the name of their family.
    formula, source, cost : str
        For the reader: the definition, where it is from, and the operations per layer.
    parameters : tuple of Parameter
        Keywords of the function, with its defaults. One named ``views`` is not passed on: it says how many views of
        every prompt the function gets.
    settings : tuple of (str, value)
        Parameters that are not at their default.
    spectral : bool
        Whether the function takes a `daskmetrics.metrics._spectra.Spectra` in place of its rows, so that metrics of
        one layer share their spectra.
    jackknife : bool
        Whether the function, called with ``leave_one_out=True``, gives the metric without each prompt in turn, (P,),
        from which its standard error follows.

    Raises
    ------
    ConfigError
        If ``takes`` is none of the four.

    Examples
    --------
    >>> Metric("norm", "pooled", "1", "mean length of a prompt's vector", "mypackage.metrics:norm").views
    1
    """

    name: str
    takes: Takes
    units: str
    description: str
    function: str
    family: str = "own"
    formula: str = ""
    source: str = ""
    cost: str = ""
    parameters: tuple[Parameter, ...] = ()
    settings: tuple[tuple[str, Value], ...] = ()
    spectral: bool = False
    jackknife: bool = False

    def __post_init__(self) -> None:
        if self.takes not in get_args(Takes):
            raise unknown(f"input of metric '{self.name}'", self.takes, get_args(Takes))

    @property
    def values(self) -> Mapping[str, Value]:
        """Every parameter and the value it has."""
        return {parameter.name: parameter.default for parameter in self.parameters} | dict(self.settings)

    @property
    def views(self) -> int:
        """How many views of every prompt it reads."""
        return int(self.values.get("views", 2)) if self.takes == "views" else 1

    @property
    def identity(self) -> str:
        """What a key is made of: the name, and of a metric from elsewhere its function too."""
        own = self.function.startswith("daskmetrics.metrics.")
        return self.name if own else f"{self.name}@{self.function}"

    def load(self) -> Callable[..., Any]:
        """The function with its parameters set; this imports torch.

        Raises
        ------
        ConfigError
            If there is no such function on this machine.
        """
        try:
            function: Callable[..., Any] = pkgutil.resolve_name(self.function)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"Metric '{self.name}' cannot be loaded from '{self.function}': {error}. "
                "It must be importable on every worker, as 'package.module:function'."
            ) from error
        keywords = {name: value for name, value in self.settings if name != "views"}
        return partial(function, **keywords) if keywords else function

    def with_settings(self, wanted: Mapping[str, Value]) -> Metric:
        """This metric with other parameters; its name becomes the text of the call, defaults left out.

        Raises
        ------
        ConfigError
            For a parameter it does not have, or a value that does not fit.

        Examples
        --------
        >>> from daskmetrics.metrics import catalogue
        >>> catalogue()["curvature"].with_settings({"k": 2}).name
        'curvature(k=2)'
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in wanted:
            if name not in known:
                raise _no_such_parameter(self.name, name, known)
        checked = {name: known[name].checked(value, self.name) for name, value in wanted.items()}
        # in the order of the parameters, so that one meaning has one name
        chosen = [(name, checked[name]) for name, own in known.items() if checked.get(name, own.default) != own.default]
        call = ", ".join(f"{name}={text(value)}" for name, value in chosen)
        return replace(self, name=f"{self.name}({call})", settings=tuple(chosen)) if chosen else self


def text(value: Value) -> str:
    """A value as it is written in a configuration.

    Examples
    --------
    >>> text(True), text(2.0), text(0.5), text("logN")
    ('true', '2', '0.5', 'logN')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _no_such_parameter(metric: str, name: str, known: Mapping[str, Parameter]) -> ConfigError:
    if not known:
        return ConfigError(f"Metric '{metric}' has no parameters, got '{name}'.")
    return unknown(f"parameter of metric '{metric}'", name, known)
