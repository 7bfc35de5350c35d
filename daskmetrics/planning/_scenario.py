"""Scenarios: workloads and partitions written by hand, for what is not configured or not reachable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from daskmetrics.config import Section
from daskmetrics.core._estimate import ONE_SAMPLE, Estimate, Interval
from daskmetrics.core._text import parse_duration, plural
from daskmetrics.core.errors import ConfigError
from daskmetrics.planning._options import NO_WAIT, UNKNOWN_WAIT, Offer
from daskmetrics.planning._workload import DEVICES, Phase, Workload

S = TypeVar("S", bound=Section)


# zero is valid here, and `parse_duration` refuses it
Time = Annotated[float, BeforeValidator(lambda text: 0.0 if text in (0, "0", "0h", "0s") else parse_duration(text))]


def _date(text: str) -> str:
    datetime.fromisoformat(text)
    return text


class ScenarioPhase(Section):
    """Equal units of a workload, with the measured or assumed time of one."""

    name: str
    units: int = Field(ge=0)
    each: Time = Field(description="time of one unit, such as 22min")
    measured: Annotated[str, AfterValidator(_date)] | None = Field(
        None, description="the day it was measured, such as '2026-01-31'; assumed if left out"
    )
    samples: int = Field(1, ge=1, description="units that were measured")
    factor: float = Field(ONE_SAMPLE, ge=1, description="factor by which it may be wrong, up and down")
    together: bool = Field(False, description="all workers do each unit together, as in data-parallel training")
    workers: int = Field(1, ge=1, description="workers that shared the measured unit, if together")
    chains: int | None = Field(None, ge=1, description="how many units can run side by side at most")
    serial: float = Field(0.0, ge=0, lt=1, description="share that more workers do not shorten")
    serial_most: float | None = Field(None, ge=0, lt=1, description="upper bound of the serial share")

    def phase(self) -> Phase:
        source = f"{plural(self.samples, 'unit')} measured {self.measured}" if self.measured else "assumed"
        at = datetime.fromisoformat(self.measured).timestamp() if self.measured else None
        seconds = Estimate(Interval.around(self.each, self.factor), source, bool(self.measured), at)
        serial = Interval(0.0 if self.serial_most else self.serial, self.serial, self.serial_most or self.serial)
        return Phase(self.name, self.units, seconds, self.chains, self.together, self.workers, serial)


class ScenarioWorkload(Section):
    """A workload written by hand."""

    name: str = "scenario"
    device: str = Field(description="device that the times hold for")
    phases: tuple[ScenarioPhase, ...] = Field(min_length=1)
    vram_gib: float = Field(0.0, ge=0)
    host_gib: float = Field(0.0, ge=0, description="of one worker")
    start: Time = Field(60.0, description="until workers are ready once their jobs run")

    def workload(self) -> Workload:
        phases = tuple(part.phase() for part in self.phases)
        return Workload(phases, self.device, Estimate(Interval.around(self.start, 2.0)), self.vram_gib, self.host_gib)


class ScenarioPartition(Section):
    """A partition written by hand."""

    name: str
    device: str
    nodes: int = Field(1, ge=1)
    gpus_per_node: int = Field(1, ge=1, description="or workers per node, if it has no GPUs")
    counts: tuple[int, ...] = Field((), description="nodes to consider; by default all of them")
    gpus: tuple[int, ...] = Field((), description="numbers of GPUs to consider, instead of whole nodes")
    free: int | None = Field(None, ge=0, description="GPUs that are free now")
    wait: Time | None = Field(None, description="expected time in the queue")
    wait_source: str = "given"
    limit: Time | None = Field(None, description="longest time of a job")
    price: float | None = Field(None, ge=0, description="of a worker for an hour")
    vram_gib: float | None = Field(None, gt=0)
    host_gib: float | None = Field(None, gt=0, description="of a node")

    def offers(self) -> Iterator[Offer]:
        """One offer for each number of nodes, or of GPUs."""
        total = self.nodes * self.gpus_per_node
        known = DEVICES.get(self.device)
        for workers in self.gpus or [n * self.gpus_per_node for n in self.counts or (self.nodes,)]:
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
                problem=f"there are only {total} {self.device}" if workers > total else None,
            )

    def _wait(self, workers: int) -> Estimate:
        if self.free is not None and self.free >= workers:
            return NO_WAIT
        if self.wait is None:
            return UNKNOWN_WAIT
        return Estimate(Interval.exactly(self.wait), "free now" if self.wait == 0 else self.wait_source)


class ScenarioPartitions(Section):
    """Partitions written by hand."""

    partitions: tuple[ScenarioPartition, ...] = Field(min_length=1)


def offers(path: Path) -> list[Offer]:
    """The offers of a file of partitions; ConfigError if the file is missing or holds something else."""
    return [offer for partition in _read(path, ScenarioPartitions).partitions for offer in partition.offers()]


def is_workload(path: Path) -> bool:
    """Whether a file holds a workload and not an experiment."""
    return path.is_file() and "phases" in _mapping(path)


def workload(path: Path) -> ScenarioWorkload:
    """The workload of a file; errors as for `offers`."""
    return _read(path, ScenarioWorkload)


def _read(path: Path, kind: type[S]) -> S:
    try:
        return kind.model_validate(_mapping(path))
    except ValidationError as error:
        problems = "; ".join(f"'{'.'.join(map(str, each['loc']))}': {each['msg']}" for each in error.errors())
        keys = ", ".join(sorted(kind.model_fields))
        raise ConfigError(f"'{path}' cannot be used: {problems}. Keys at the top: {keys}.") from None


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
