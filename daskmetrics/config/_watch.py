"""The section ``watch``: how `daskmetrics watch` follows a suite that grows."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from daskmetrics.config.section import Line, Section, matching
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.text import parse_duration


def _check_duration(text: str) -> str:
    try:
        parse_duration(text)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return text


def _listed(value: object) -> object:
    """``log: mlflow`` stands for a list of one."""
    return [value] if isinstance(value, str) else value


Duration = Annotated[Line, AfterValidator(_check_duration)]
Trackers = Annotated[tuple[Literal["mlflow", "wandb"], ...], BeforeValidator(_listed)]
Keep = Annotated[
    str, matching(r"best\([1-9]\d{0,3}\)", "best(N) with a number of checkpoints, such as best(3)")
]


class Watch(Section):
    """How `daskmetrics watch` follows a suite that grows; `daskmetrics run` does not read it."""

    poll: Duration = Field(
        "5s",
        description="Time between two looks at the folders; the hub is asked at most once a "
        "minute.",
        examples=["30s"],
    )
    settle: Duration = Field(
        "3s",
        description="How long the files of a checkpoint must not have changed before it is read.",
        examples=["10s"],
    )
    until_idle: Duration = Field(
        "none",
        description="End when no new checkpoint appeared for this long. `none` does not end.",
        examples=["10m"],
    )
    keep: Keep | None = Field(
        None,
        description="Name the other checkpoints as those that may be deleted; nothing is deleted.",
        examples=["best(3)"],
    )

    log: Trackers = Field(
        (),
        description="Also log each round to MLflow or Weights & Biases, as their own settings and "
        "variables say where.",
        examples=[["mlflow", "wandb"]],
    )

    @property
    def kept(self) -> int | None:
        """The number of checkpoints to keep; None to name none that may be deleted."""
        return int(re.sub(r"\D", "", self.keep)) if self.keep else None
