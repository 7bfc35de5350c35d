"""Checks before or after a run of what can fail, each with a remedy: of a profile, an experiment or a run.

============= =======================================================================
`_facts`      the facts that checks read and the findings that they return
`_collect`    collects the facts
`_slurm`      checks of a profile against Slurm
`_machine`    checks of network, Python and GPUs
`_storage`    checks of folders, of the hub's cache and of checkpoints
`_history`    checks of a run by its journal
============= =======================================================================

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
from daskmetrics.core._files import RUNS, RunFolder, run_names
from daskmetrics.core.errors import ConfigError, did_you_mean
from daskmetrics.planning.doctor import _collect, _history, _machine, _slurm, _storage
from daskmetrics.planning.doctor._facts import Check, Facts, Finding, Severity

__all__ = ["CHECKS", "Facts", "Finding", "Severity", "Subject", "collect", "examine", "subject"]

CHECKS: Mapping[str, Check] = {
    "slurm-commands": _slurm.commands,
    "slurm-answers": _slurm.answers,
    "partition": _slurm.partition,
    "nodes": _slurm.nodes,
    "account": _slurm.account,
    "job-limit": _slurm.limits,
    "gres": _slurm.gres,
    "walltime": _slurm.walltime,
    "memory": _slurm.memory,
    "cpus": _slurm.cpus,
    "task-layout": _slurm.task_layout,
    "allocation-layout": _slurm.allocation_layout,
    "memory-directives": _slurm.memory_directives,
    "rehearsal": _slurm.rehearsal,
    "interface": _machine.interface,
    "interface-leads": _machine.interface_leads,
    "interface-on-worker": _machine.interface_on_worker,
    "node-names": _machine.names,
    "clock": _machine.clock,
    "ports": _machine.ports,
    "open-files": _machine.open_files,
    "nccl-interface": _machine.nccl_interface,
    "infiniband": _machine.infiniband,
    "python": _machine.python,
    "same-versions": _machine.same_versions,
    "environment": _machine.environment_is_shared,
    "threads": _machine.threads,
    "gpu": _machine.gpu,
    "gpu-driver": _machine.gpu_driver,
    "gpu-memory": _machine.gpu_memory,
    "run-folder": _storage.writable("run"),
    "cache-folder": _storage.writable("cache"),
    "logs-folder": _storage.writable("logs"),
    "scratch-folder": _storage.writable("scratch"),
    "disk-room": _storage.room,
    "disk-files": _storage.files,
    "quota": _storage.quota,
    "shared-folders": _storage.shared,
    "disk-speed": _storage.speed,
    "hub-cache": _storage.hub_cache,
    "hub-home": _storage.hub_home,
    "hub-switches": _storage.hub_switches,
    "checkpoints": _storage.checkpoints,
    "equal-weights": _storage.equal_weights,
    "weights": _storage.weights,
    "driver": _history.driven,
    "failed-units": _history.failed_units,
    "out-of-memory": _history.out_of_memory,
    "timeouts": _history.timeouts,
    "deaths": _history.deaths,
    "slow-node": _history.slow_node,
    "uneven-units": _history.uneven,
    "waiting": _history.waiting,
}


@dataclass(frozen=True)
class Subject:
    """What is checked: a profile, and the experiment and run that it belongs to, if any."""

    profile: Cluster
    config: Config | None
    run: RunFolder
    is_run: bool


def subject(text: str) -> Subject:
    """The subject that the command line names: a run, an experiment's YAML, or a profile, by name or file."""
    path = Path(text)
    run = RunFolder(path)
    if run.journal.is_file():
        config = configuration.load(run.config) if run.config.is_file() and _has_models(run.config) else None
        return Subject(config.cluster if config else Cluster(), config, run, True)
    if path.is_dir():
        run.must_exist()
    if path.is_file() and _has_models(path):
        config = configuration.load(path)
        return Subject(config.cluster, config, RunFolder(RUNS / config.name), False)
    try:
        return Subject(configuration.cluster(text), None, RunFolder(RUNS), False)
    except ConfigError as error:
        names = run_names(RUNS)
        if text in names:
            return subject(str(RUNS / text))
        if not names or path.suffix:
            raise
        raise ConfigError(f"{error}{did_you_mean(text, names)} Runs in '{RUNS}': {', '.join(names)}.") from None


def _has_models(path: Path) -> bool:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"'{path}' cannot be read as YAML: {error}") from None
    return isinstance(data, Mapping) and "models" in data


def collect(subject: Subject, start_worker: bool = False) -> Facts:
    """Collect the facts of a subject, and with ``start_worker`` those of the machine of a worker, too."""
    profile, suites = subject.profile, _collect.suites(subject.config)
    worker, unseen = _collect.worker(profile, subject.run, suites) if start_worker else (None, None)
    return Facts(
        profile=profile,
        here=_collect.machine(profile.interface),
        slurm=_collect.slurm(profile) if profile.kind == "slurm" else None,
        worker=worker,
        unseen=unseen,
        folders=_collect.folders(profile, subject.run),
        quota=_collect.printed("quota", "-w"),
        prefix=Path(sys.prefix),
        prefix_kind=_collect.file_system(Path(sys.prefix)),
        hub=_collect.hub(subject.config, suites),
        suites=suites,
        history=_collect.history(subject.run) if subject.is_run else None,
        environment=subject.config.ddp.environment if subject.config else {},
    )


def examine(facts: Facts) -> dict[str, Finding | None]:
    """The findings of all checks, by name; None for those that do not apply."""
    return {name: check(facts) for name, check in CHECKS.items()}
