"""What a metric is: name, input, unit, parameters, place of its function; no torch.

Configurations name a metric, or write a call with constants such as ``prompt_entropy(alpha=2,
centred=false)``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from daskmetrics.core.errors import ConfigError, require_known
from daskmetrics.core.keys import content_key
from daskmetrics.core.main_module import restore_state, state_with_main_object
from daskmetrics.core.user_code import code_key, load_object
from daskmetrics.domain.plan import MetricInfo
from daskmetrics.metrics.views import AUGMENTATION

Takes = Literal["tokens", "pooled", "views", "layers"]
Value: TypeAlias = bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One keyword of a metric: its default, type and valid values.

    Parameters
    ----------
    name : str
    default : bool, int, float or str
    choices : tuple of str
        Valid words, for a text.
    least : float
        Smallest valid number.
    above : float
        Valid numbers are greater than this.

    Examples
    --------
    >>> Parameter("k", 1, least=1).check(2, "curvature")
    2
    """

    name: str
    default: Value
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    above: float = -math.inf

    def check(self, value: Value, metric: str) -> Value:
        """The value, in the type of this parameter.

        Raises
        ------
        ConfigError
            If it has another type, is not a choice, or is out of range.
        """
        if self.choices and isinstance(value, str):
            require_known(f"{self.name} of metric '{metric}'", value, self.choices)
            return value
        if type(self.default) is float and type(value) is int:
            value = float(value)
        in_range = isinstance(value, str) or (
            math.isfinite(value) and value >= self.least and value > self.above
        )
        if type(value) is not type(self.default) or not in_range:
            raise ConfigError(
                f"Metric '{metric}': {self.name} must be {self.valid}, got {text(value)}."
            )
        return value

    @property
    def valid(self) -> str:
        """The valid values, in words."""
        if isinstance(self.default, str):
            return " or ".join(self.choices)
        if isinstance(self.default, bool):
            return "true or false"
        kind = "a number"
        if isinstance(self.default, int):
            kind = "a whole number"
        bounds = [f"of at least {self.least:g}"] * math.isfinite(self.least)
        return " ".join([kind, *bounds, *[f"above {self.above:g}"] * math.isfinite(self.above)])

    def __str__(self) -> str:
        return f"{self.name}={text(self.default)}"


@dataclass(frozen=True)
class Metric:
    """A label-free property of a layer, and where its function is.

    Parameters
    ----------
    name : str
        In the configuration and the store. With parameters it is the text of the call,
        ``curvature(k=2)``.
    takes : {"tokens", "pooled", "views", "layers"}
        Input of the function; `daskmetrics.metrics` lists the shapes.
    units : str
    description : str
        One line.
    function : str
        ``package.module:function``, imported only by `load`, on a worker. A function
        ``__main__:function``, of the calling script or notebook, is sent to the workers.
    family : str
        A configuration may name all metrics of a family at once.
    formula, source, cost : str
        For the reader: the definition, its paper, and the operations per layer.
    parameters : tuple of Parameter
        Keywords of the function, with their defaults. A parameter named ``views`` is not passed to
        the function: it is the number of views of each prompt that the function reads.
    settings : tuple of (str, value)
        Parameters whose value is not the default.
    spectral : bool
        Whether the function also accepts a `daskmetrics.metrics._spectra.Spectra` in place of its
        rows, so that the metrics of a layer share their spectra.
    jackknife : bool
        Whether the function, called with ``leave_one_out=True``, returns the metric without each
        prompt in turn, (P,), from which its standard error is computed.

    Raises
    ------
    ConfigError
        If ``takes`` is not one of the four.

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
    family: str = "custom"
    formula: str = ""
    source: str = ""
    cost: str = ""
    parameters: tuple[Parameter, ...] = ()
    settings: tuple[tuple[str, Value], ...] = ()
    spectral: bool = False
    jackknife: bool = False

    def __post_init__(self) -> None:
        require_known(f"input of metric '{self.name}'", self.takes, get_args(Takes))

    def __getstate__(self) -> dict[str, Any]:
        return state_with_main_object(self, self.function)

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore_state(self, state)

    @property
    def values(self) -> Mapping[str, Value]:
        """The value of every parameter."""
        return {parameter.name: parameter.default for parameter in self.parameters} | dict(
            self.settings
        )

    @property
    def views(self) -> int:
        """Number of views of every prompt that it reads."""
        if self.takes != "views":
            return 1
        return int(self.values.get("views", 2))

    @property
    def identity(self) -> str:
        """The name, for keys; of another package's also function and code."""
        if self.function.startswith("daskmetrics.metrics."):
            return self.name
        return f"{self.name}@{self.function}@{code_key(self.function)}"

    def info(self, seed: int) -> MetricInfo:
        """What a plan says of it; its views are drawn with the seed."""
        views = [AUGMENTATION, seed] if self.views > 1 else None
        key = content_key("metric", self.identity, views)
        return MetricInfo(self.name, self.units, self.description, key)

    def load(self) -> Callable[..., Any]:
        """Import the function, with its parameters set; this imports torch.

        Raises
        ------
        ConfigError
            If the function does not exist on this machine.
        """
        subject = f"Function '{self.function}' of the metric '{self.name}'"
        function: Callable[..., Any] = load_object(subject, self.function)
        keywords = {name: value for name, value in self.settings if name != "views"}
        if keywords:
            return partial(function, **keywords)
        return function

    def with_settings(self, values: Mapping[str, Value]) -> Metric:
        """This metric with other parameters, which its name shows.

        Raises
        ------
        ConfigError
            If a parameter does not exist, or its value is not valid.

        Examples
        --------
        >>> from daskmetrics.metrics import catalogue
        >>> catalogue()["curvature"].with_settings({"k": 2}).name
        'curvature(k=2)'
        """
        parameters = {parameter.name: parameter for parameter in self.parameters}
        for name in values:
            if not parameters:
                raise ConfigError(f"Metric '{self.name}' has no parameters, got '{name}'.")
            require_known(f"parameter of metric '{self.name}'", name, parameters)
        checked = {name: parameters[name].check(value, self.name) for name, value in values.items()}
        # in the order of the parameters, so that equal settings give equal names
        chosen = [
            (name, checked[name])
            for name, parameter in parameters.items()
            if checked.get(name, parameter.default) != parameter.default
        ]
        if not chosen:
            return self
        call = ", ".join(f"{name}={text(value)}" for name, value in chosen)
        return replace(self, name=f"{self.name}({call})", settings=tuple(chosen))


def text(value: Value) -> str:
    """A value as it is written in a configuration.

    >>> text(True), text(2.0), text(0.5), text("logN")
    ('true', '2', '0.5', 'logN')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return str(value)


def constant(word: str) -> Value:
    """The value of a word in a configuration.

    >>> constant("true"), constant("2"), constant("0.5"), constant("'logN'")
    (True, 2, 0.5, 'logN')
    """
    try:
        value = json.loads(word.lower())
    except ValueError:
        value = None
    if isinstance(value, bool | int | float):
        return value
    return word.strip("'\"")
