"""The base of every section, and the types of its text fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.text import parse_duration, parse_walltime

DEEPEST, WIDEST = 10_000, 1_000_000  #: blocks and hidden size of a model; greater ones are mistakes


def shorten(value: object, length: int = 200) -> str:
    """A value as text for a message."""
    try:
        text = str(value) if isinstance(value, Exception) else repr(value)
    # a number of more digits than Python writes, lists that are nested deeply, an object with an
    # error of its own
    except (ValueError, TypeError, AttributeError, RuntimeError):
        text = f"a {type(value).__name__} that cannot be written"
    if len(text) > length:
        text = f"{text[:length]} ..."
    return text


def fulfilling(condition: Callable[[str], object], meaning: str) -> AfterValidator:
    """A validator of text that fulfils a condition."""

    def check(text: str) -> str:
        if not condition(text):
            raise ValueError(f"must be {meaning}")
        return text

    return AfterValidator(check)


def matching(pattern: str, meaning: str) -> AfterValidator:
    """A validator of text that matches a pattern."""
    return fulfilling(re.compile(pattern).fullmatch, meaning)


def read_by(parse: Callable[[str], object]) -> AfterValidator:
    """A validator of text that a function can read."""

    def check(text: str) -> str:
        try:
            parse(text)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(check)


# all of these become folders, Slurm job names, or parts of lines of job scripts
Name = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}",
        "letters, digits, '.', '_' or '-', start with a letter or digit, at most 96 characters",
    ),
]
Line = Annotated[
    str,
    fulfilling(
        lambda text: text.isprintable() and len(text) <= 4096,
        "one printable line of at most 4096 characters",
    ),
]
# an account and an argument may be numbers, which YAML and the environment give as such
TextOrNumber = Annotated[
    str,
    Field(coerce_numbers_to_str=True),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]}),
]
_is_word = matching(
    r"[A-Za-z0-9][A-Za-z0-9._:,@+-]{0,95}", "one word of letters, digits and ._:,@+-"
)
Word = Annotated[str, _is_word]
SlurmName = Annotated[TextOrNumber, _is_word]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_WORD_OR_LIST = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
)
# Slurm takes several partitions as one word, joined by commas
Partitions = Annotated[
    SlurmName,
    BeforeValidator(
        lambda value: ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    ),
    _WORD_OR_LIST,
]
Size = Annotated[str, matching(r"\d+(\.\d+)? ?[kKMGTP]?i?B?", "a size such as 16GiB")]
Source = Annotated[
    Line,
    fulfilling(
        lambda text: (
            len(text) <= 1024 and max(len(name.encode()) for name in text.split("/")) <= 255
        ),
        "a path or a name of at most 1024 characters",
    ),
]
SharedFolder = Annotated[Source, matching(r"[^\s%]+", "a path without spaces and without %")]
Revision = Annotated[
    Line,
    matching(
        r"(?![/~-])(?!.*\.\.).{1,250}",
        "a name, without '..' and not beginning with '/', '~' or '-'",
    ),
]
Walltime = Annotated[str, read_by(parse_walltime)]
Duration = Annotated[Line, read_by(parse_duration)]
Directive = Annotated[Line, matching(r"--?[A-Za-z].*", "an option of sbatch such as '--exclusive'")]
DottedName = Annotated[
    str, matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "a name of Python such as package.module")
]
# a single value may stand for a list of one
AS_LIST = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else [value])
Names = Annotated[tuple[str, ...], AS_LIST, _WORD_OR_LIST]
Variable = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]{0,95}", "the name of a variable")]


class Section(BaseModel):
    """A part of the configuration: frozen, and strict about its keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        fields = {field.alias or name: field for name, field in cls.model_fields.items()}
        problems = []
        for key, value in data.items():
            if key not in fields:
                problems.append(str(unknown("key", str(key), fields)))
            elif isinstance(value, bool) and fields[key].annotation is not bool:
                # YAML 1.1 reads some words as true or false, which would then count as 1 and 0
                problems.append(
                    f"'{key}' is {value}: YAML reads on, off, yes and no as true or false. Put the"
                    " word in quotes, or write another value."
                )
        if problems:
            raise PydanticCustomError("keys", "{problems}", {"problems": "\n".join(problems)})
        return data
