"""Two different values of each kind, for tests/core/test_content.py; run as a script, their hashes."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import json
import operator
import re
import sys
import threading
import types
import uuid
import zoneinfo
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pydantic
import torch
from scipy import sparse

from daskmetrics.core.content import NOT_REPRODUCIBLE, content_hash


@dataclasses.dataclass(frozen=True)
class Setting:
    rate: object


@dataclasses.dataclass(slots=True)
class Slotted:
    rate: object


class Plain:
    def __init__(self, rate: object) -> None:
        self.rate = rate

    def method(self) -> object:
        return self.rate


class Circular(Plain):
    def __init__(self, rate: object) -> None:
        super().__init__(rate)
        self.me = self


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Row(NamedTuple):
    rate: object


class Model(pydantic.BaseModel):
    rate: int
    names: set[str] = {"one", "two", "three"}


class Text(str):
    pass


class Words(set):
    pass


class FrozenWords(frozenset):
    pass


class Named(torch.nn.Linear):
    def __init__(self, weight: float) -> None:
        super().__init__(1, 1, bias=False)
        self.weight.data[:] = weight


def adding(rate: int):
    return lambda item: item + rate


def masked(numbers: list[int], mask: list[int]) -> np.ndarray:
    return np.ma.array(numbers, mask=mask)


WORDS = {f"word {i}" for i in range(9)}  # few may have one order in two processes
ZONES = zoneinfo.ZoneInfo("Europe/Berlin"), zoneinfo.ZoneInfo("America/Lima")
EYE = torch.eye(2)
TWINS = ([1, 2], [1, 3])

KINDS = {
    "dataclass": (Setting(0.1), Setting(0.2)),
    "dataclass of a set": (Setting(WORDS), Setting({"one"})),
    "slots": (Slotted(WORDS), Slotted(1)),
    "object": (Plain(WORDS), Plain(1)),
    "circular": (Circular(1), Circular(2)),
    "enum": (Color.RED, Color.BLUE),
    "flags": (Flags.A, Flags.A | Flags.B),
    "named tuple": (Row(1), Row(2)),
    "pydantic": (Model(rate=1), Model(rate=2)),
    "subclass of str": (Text("a"), "a"),
    "frozenset": (frozenset(WORDS), frozenset({"one"})),
    "set": (WORDS, {1}),
    "subclass of set": (Words(WORDS), WORDS),
    "subclass of frozenset": (FrozenWords(WORDS), FrozenWords({"one"})),
    "tuple": ((1,), [1]),
    "keys": ({(1, "a"): WORDS}, {(1, "b"): WORDS}),
    "numbers as keys": ({1: 2}, {"1": 2}),
    "ordered": (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    "default": (collections.defaultdict(list), collections.defaultdict(set)),
    "counter": (collections.Counter("ab"), collections.Counter("aab")),
    "deque": (collections.deque([1]), collections.deque([2])),
    "proxy": (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
    "namespace": (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    "path": (Path("a"), Path("b")),
    "decimal": (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    "fraction": (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    "complex": (1j, 2j),
    "not a number": ((float("nan"),), (float("inf"),)),
    "date": (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    "zone": tuple(datetime.datetime(2020, 1, 1, tzinfo=zone) for zone in ZONES),
    "duration": (datetime.timedelta(1), datetime.timedelta(2)),
    "uuid": (uuid.UUID(int=1), uuid.UUID(int=2)),
    "bytes": (b"a", b"b"),
    "bytearray": (bytearray(b"a"), b"a"),
    "range": (range(3), range(4)),
    "slice": (slice(1), slice(2)),
    "pattern": (re.compile("a"), re.compile("a", re.IGNORECASE)),
    "ellipsis": (..., NotImplemented),
    "generic": (list[int], list[str]),
    "exception": (ValueError("a"), ValueError("b")),
    "function": (adding, masked),
    "closure": (adding(1), adding(2)),
    "lambda": (lambda item: 1, lambda item: 2),
    "cache": (functools.cache(adding), functools.cache(masked)),
    "partial": (functools.partial(int, base=2), functools.partial(int, base=3)),
    "method": (Plain(1).method, Plain(2).method),
    "built-in": (len, abs),
    "built-in method": (",".join, ";".join),
    "getter": (operator.itemgetter(1), operator.itemgetter(2)),
    "class": (Setting, Plain),
    "module": (re, json),
    "float64": (np.float64(0.1), 0.1),
    "float32": (np.float32(1), np.float64(1)),
    "datetime64": (np.datetime64("2020-01-01"), np.datetime64("2020-01-01", "s")),
    "array": (np.arange(4), np.arange(4).reshape(2, 2)),
    "structured": (np.zeros(2, [("a", "i4")]), np.zeros(2, [("b", "i4")])),
    "structured scalar": (np.zeros(1, [("a", "i4")])[0], np.ones(1, [("a", "i4")])[0]),
    "array of objects": (np.array([WORDS, None]), np.array([{"one"}, None])),
    "array of dates": (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-01"], "M8[s]")),
    "masked": (masked([1, 2], [0, 1]), masked([1, 2], [1, 0])),
    "masked data": (masked([1, 2], [0, 1]), masked([3, 2], [0, 1])),
    "dtype": (np.dtype("f4"), np.dtype("f8")),
    "ufunc": (np.sin, np.cos),
    "generator of numbers": (np.random.default_rng(1), np.random.default_rng(2)),
    "sparse matrix": (sparse.csr_matrix(np.eye(2)), sparse.csr_matrix(2 * np.eye(2))),
    "sparse array": (sparse.coo_array(np.eye(2)), sparse.coo_array(2 * np.eye(2))),
    "frame": tuple(pd.DataFrame({"a": ["x", "y"], "b": numbers}) for numbers in TWINS),
    "labels of a frame": tuple(pd.DataFrame({"a": [1, 2]}, index=index) for index in TWINS),
    "series": tuple(map(pd.Series, TWINS)),
    "categorical": (pd.Categorical(["a", "b"]), pd.Categorical(["a", "a"])),
    "index": tuple(map(pd.Index, TWINS)),
    "index of tuples": tuple(pd.MultiIndex.from_tuples([numbers]) for numbers in TWINS),
    "timestamp": (pd.Timestamp("2020"), pd.Timestamp("2021")),
    "interval": (pd.Interval(0, 1), pd.Interval(0, 2)),
    "missing": (pd.NA, pd.NaT),
    "tensor": (torch.arange(4), torch.arange(4.0)),
    "number of torch": (torch.tensor(1.0), torch.tensor(2.0)),
    "bfloat16": (torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)),
    "parameter": (torch.nn.Parameter(EYE), torch.nn.Parameter(2 * EYE)),
    "network": (Named(1.0), Named(2.0)),
    "sparse tensor": (EYE.to_sparse(), (2 * EYE).to_sparse()),
    "meta": (EYE.to("meta"), torch.ones(3, device="meta")),
    "type of a tensor": (torch.float32, torch.float64),
    "device": (torch.device("cpu"), torch.device("meta")),
}

REFUSED = {
    "nothing": object(),
    "generator": (item for item in "ab"),
    "iterator": iter([1]),
    "lock": threading.Lock(),
    "view": memoryview(b"a"),
    "file": sys.stdout,
    "within": Setting(threading.Lock()),
    "longest": [10**5000],
}


def hash_or_error(value: object) -> str:
    """The hash of a value, or the error that refuses it."""
    try:
        return content_hash(value)
    except NOT_REPRODUCIBLE as error:
        return f"refused: {error}"


if __name__ == "__main__":
    print(json.dumps({name: list(map(hash_or_error, twins)) for name, twins in KINDS.items()}))
