"""What will go wrong here, and what to do about it: checks of a profile, an experiment or a run.

============= ==================================================================
`facts`       what is looked at, as frozen values
`gathering`   how it is found out
`finding`     what a check says
`queue`       checks of a profile against Slurm
`machine`     checks of network, Python and GPUs
`storage`     checks of folders and of the hub's cache
`past`        checks of a run by its journal
============= ==================================================================

A check is a function of `Facts`; a new one is a line of `CHECKS`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from daskmetrics import config as configuration
from daskmetrics.config import Cluster, Config
from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError
from daskmetrics.planning.doctor import _collect as collect
from daskmetrics.planning.doctor import _history as history
from daskmetrics.planning.doctor import _machine as machine
from daskmetrics.planning.doctor import _slurm as slurm
from daskmetrics.planning.doctor import _storage as storage
from daskmetrics.planning.doctor._facts import Facts
from daskmetrics.planning.doctor._finding import Check, Finding, Verdict

__all__ = ["CHECKS", "Facts", "Finding", "Subject", "Verdict", "examine", "gather", "subject"]

CHECKS: Mapping[str, Check] = {
    "slurm-commands": slurm.commands,
    "slurm-answers": slurm.answers,
    "partition": slurm.partition,
    "nodes": slurm.nodes,
    "account": slurm.account,
    "job-limit": slurm.limits,
    "gres": slurm.gres,
    "walltime": slurm.walltime,
    "memory": slurm.memory,
    "cpus": slurm.cpus,
    "task-layout": slurm.task_layout,
    "allocation-layout": slurm.allocation_layout,
    "memory-directives": slurm.memory_directives,
    "rehearsal": slurm.rehearsal,
    "interface": machine.interface,
    "interface-leads": machine.interface_leads,
    "interface-on-worker": machine.interface_on_worker,
    "node-names": machine.names,
    "ports": machine.ports,
    "open-files": machine.open_files,
    "nccl-interface": machine.nccl_interface,
    "infiniband": machine.infiniband,
    "python": machine.python,
    "same-versions": machine.same_versions,
    "environment": machine.environment_is_shared,
    "threads": machine.threads,
    "gpu": machine.gpu,
    "gpu-driver": machine.gpu_driver,
    "gpu-memory": machine.gpu_memory,
    "run-folder": storage.writable("run"),
    "cache-folder": storage.writable("cache"),
    "logs-folder": storage.writable("logs"),
    "scratch-folder": storage.writable("scratch"),
    "disk-room": storage.room,
    "disk-files": storage.files,
    "quota": storage.quota,
    "shared-folders": storage.shared,
    "disk-speed": storage.speed,
    "hub-cache": storage.hub_cache,
    "hub-home": storage.hub_home,
    "hub-switches": storage.hub_switches,
    "driver": history.driven,
    "failed-units": history.failed_units,
    "out-of-memory": history.out_of_memory,
    "timeouts": history.timeouts,
    "deaths": history.deaths,
    "slow-node": history.slow_node,
    "uneven-units": history.uneven,
    "waiting": history.waiting,
}


@dataclass(frozen=True)
class Subject:
    """What is examined: a profile, with the experiment and the run that it belongs to, if there are any."""

    profile: Cluster
    config: Config | None
    run: RunFolder
    is_run: bool


def subject(wanted: str) -> Subject:
    """What a word of the command line means: a run's folder, an experiment's YAML, a profile's name or YAML.

    Raises
    ------
    ConfigError
        If it is none of these.
    """
    path = Path(wanted)
    place = RunFolder(path)
    if place.journal.is_file():
        config = configuration.load(place.config) if place.config.is_file() and _holds(place.config, "models") else None
        return Subject(config.cluster if config else Cluster(), config, place, True)
    if path.is_dir():
        place.must_exist()
    if path.is_file() and _holds(path, "models"):
        config = configuration.load(path)
        return Subject(config.cluster, config, RunFolder(Path("runs") / config.name), False)
    return Subject(configuration.cluster(wanted), None, RunFolder(Path("runs")), False)


def _holds(path: Path, key: str) -> bool:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"'{path}' cannot be read as YAML: {error}") from None
    return isinstance(data, Mapping) and key in data


def gather(examined: Subject, ask_worker: bool = False) -> Facts:
    """Find out what there is to know; a worker is started only if it is to be asked.

    Raises
    ------
    ConfigError
        If a worker is to be asked and none arrives.
    """
    profile = examined.profile
    return Facts(
        profile=profile,
        here=collect.machine(profile.interface),
        slurm=collect.slurm(profile) if profile.kind == "slurm" else None,
        worker=collect.worker(profile) if ask_worker else None,
        folders=collect.folders(profile, examined.run),
        quota=collect.quota(),
        prefix=Path(sys.prefix),
        prefix_kind=collect.file_system(Path(sys.prefix)),
        hub=collect.hub(examined.config),
        history=collect.history(examined.run) if examined.is_run else None,
    )


def examine(facts: Facts) -> dict[str, Finding | None]:
    """What every check says, by name; None for those that do not apply."""
    return {name: check(facts) for name, check in CHECKS.items()}
