"""How a metric is asked for: ``name``, or a call with constants such as ``prompt_entropy(alpha=2, centred=false)``."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from daskmetrics.core.errors import ConfigError
from daskmetrics.metrics._metric import Value

_WORDS: Mapping[str, Value] = {"true": True, "false": False}


def parse(call: str) -> tuple[str, dict[str, Value]]:
    """Name and keywords of a call; nothing is evaluated.

    Parameters
    ----------
    call : str
        Values are numbers, true or false, and words with or without quotes.

    Raises
    ------
    ConfigError
        If the text is no such call.

    Examples
    --------
    >>> parse("prompt_entropy(alpha=2, centred=false, norm=logN)")
    ('prompt_entropy', {'alpha': 2, 'centred': False, 'norm': 'logN'})
    """
    name, bracket, _ = call.partition("(")
    if not bracket and ")" not in call and "=" not in call:
        return call, {}
    try:
        node = ast.parse(call.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise _no_call(call) from None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        raise _no_call(call)
    keywords = {keyword.arg: _constant(keyword.value, call) for keyword in node.keywords if keyword.arg}
    if len(keywords) < len(node.keywords):
        raise _no_call(call)
    return name.strip(), keywords


def _constant(node: ast.expr, call: str) -> Value:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=word):
            return _WORDS.get(word.lower(), word)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    raise _no_call(call)


def _no_call(call: str) -> ConfigError:
    # a comma inside [ ] splits an entry of YAML that is not in quotes
    return ConfigError(
        f"'{call}' is no metric: write NAME or NAME(PARAMETER=VALUE, ...) with plain values, "
        "and in quotes where a YAML list stands in brackets."
    )
