"""Workloads and partitions written down by hand, for what is not configured or not reachable: "what if" on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from daskmetrics.config import Section
from daskmetrics.core._estimate import ONE_SAMPLE, Estimate, Interval
from daskmetrics.core._text import plural
from daskmetrics.core._times import parse_duration
from daskmetrics.core.errors import ConfigError
from daskmetrics.planning import NO_WAIT, UNKNOWN_WAIT, Offer, Phase, Workload
from daskmetrics.planning._devices import DEVICES

S = TypeVar("S", bound=Section)


def _time(text: Any) -> Any:
    # zero is valid here, and `parse_duration` refuses it
    return 0.0 if text in (0, "0", "0h", "0s") else parse_duration(text)


Time = Annotated[float, BeforeValidator(_time)]


def _date(text: str) -> str:
    datetime.fromisoformat(text)
    return text


class ScenarioPhase(Section):
    """Equal units of a workload, with the seconds that one took or is assumed to take."""

    name: str
    units: int = Field(ge=0)
    each: Time = Field(description="time of one unit, such as 22min")
    measured: Annotated[str, AfterValidator(_date)] | None = Field(
        None, description="the day it was measured, such as '2026-01-31'; assumed if left out"
    )
    samples: int = Field(1, ge=1, description="units that were measured")
    factor: float = Field(ONE_SAMPLE, ge=1, description="factor by which it may be wrong, up and down")
    together: bool = Field(False, description="all workers do each unit together, as in data-parallel training")
    workers: int = Field(1, ge=1, description="by how many a unit was measured, if together")
    chains: int | None = Field(None, ge=1, description="how many units can run side by side at most")
    serial: float = Field(0.0, ge=0, lt=1, description="share that does not become shorter with more workers")
    serial_most: float | None = Field(None, ge=0, lt=1, description="what it may be at most")

    def phase(self) -> Phase:
        """As the planning room has it."""
        source = f"{plural(self.samples, 'unit')} measured {self.measured}" if self.measured else "assumed"
        at = datetime.fromisoformat(self.measured).timestamp() if self.measured else None
        figure = Estimate(Interval.around(self.each, self.factor), source, bool(self.measured), at)
        serial = Interval(0.0 if self.serial_most else self.serial, self.serial, self.serial_most or self.serial)
        return Phase(self.name, self.units, figure, self.chains, self.together, self.workers, serial)


class ScenarioWorkload(Section):
    """A workload on paper."""

    name: str = "on paper"
    device: str = Field(description="on which a unit's time was measured or is assumed")
    phases: tuple[ScenarioPhase, ...] = Field(min_length=1)
    vram_gib: float = Field(0.0, ge=0)
    host_gib: float = Field(0.0, ge=0, description="of one worker")
    start: Time = Field(60.0, description="until workers are there once their jobs run")

    def workload(self) -> Workload:
        """As the planning room has it."""
        phases = tuple(part.phase() for part in self.phases)
        return Workload(phases, self.device, Estimate(Interval.around(self.start, 2.0)), self.vram_gib, self.host_gib)


class ScenarioPartition(Section):
    """A partition on paper."""

    name: str
    device: str
    nodes: int = Field(1, ge=1)
    gpus_per_node: int = Field(1, ge=1, description="workers of a node, if it has no GPUs")
    counts: tuple[int, ...] = Field((), description="nodes to consider; by default all of them")
    gpus: tuple[int, ...] = Field((), description="numbers of GPUs to consider, instead of whole nodes")
    free: int | None = Field(None, ge=0, description="GPUs that are free now")
    wait: Time | None = Field(None, description="what the queue was seen or said to take")
    wait_source: str = "given"
    limit: Time | None = Field(None, description="that a job may run")
    price: float | None = Field(None, ge=0, description="of a GPU-hour")
    vram_gib: float | None = Field(None, gt=0)
    host_gib: float | None = Field(None, gt=0, description="of a node")

    def offers(self) -> Iterator[Offer]:
        """One for each number of nodes, or of GPUs."""
        for workers in self.gpus or [n * self.gpus_per_node for n in self.counts or (self.nodes,)]:
            known = DEVICES.get(self.device)
            yield Offer(
                self.name,
                self.device,
                nodes=-(-workers // self.gpus_per_node),
                workers=workers,
                wait=self._wait(workers),
                free=self.free,
                limit=self.limit,
                vram_gib=self.vram_gib or (known.memory_gib if known else None),
                host_gib=self.host_gib / self.gpus_per_node if self.host_gib else None,
                price=self.price,
                partition=self.name,
                problem=self._lacking(workers),
            )

    def _wait(self, workers: int) -> Estimate:
        if self.free is not None and self.free >= workers:
            return NO_WAIT
        if self.wait is None:
            return UNKNOWN_WAIT
        return Estimate(Interval.exactly(self.wait), "free now" if self.wait == 0 else self.wait_source)

    def _lacking(self, workers: int) -> str | None:
        most = self.nodes * self.gpus_per_node
        return f"there are {most} {self.device} in all" if workers > most else None


class ScenarioPartitions(Section):
    """Partitions on paper."""

    partitions: tuple[ScenarioPartition, ...] = Field(min_length=1)


def offers(path: Path) -> list[Offer]:
    """The offers of a file of partitions.

    Raises
    ------
    ConfigError
        If the file is missing or does not hold partitions.
    """
    return [offer for place in _read(path, ScenarioPartitions).partitions for offer in place.offers()]


def is_workload(path: Path) -> bool:
    """Whether a file holds a workload on paper and not an experiment."""
    return path.is_file() and "phases" in _mapping(path)


def workload(path: Path) -> ScenarioWorkload:
    """A workload from its file; errors as for `offers`."""
    return _read(path, ScenarioWorkload)


def _read(path: Path, kind: type[S]) -> S:
    try:
        return kind.model_validate(_mapping(path))
    except ValidationError as error:
        told = (f"'{'.'.join(map(str, each['loc']))}': {each['msg']}" for each in error.errors())
        keys = ", ".join(sorted(kind.model_fields))
        raise ConfigError(f"'{path}' cannot be used: {'; '.join(told)}. Keys at the top: {keys}.") from None


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"'{path}' is not YAML: {error}") from None
    if not isinstance(data, Mapping):
        raise ConfigError(f"'{path}' must hold 'key: value' lines.")
    return data
