"""Checks before or after a run of what can fail, each with a remedy: of a profile, an experiment or
a run.

========= ===============================================================================
`facts`   the facts that checks read, their collection, and the findings that they return
`slurm`   checks of a profile against Slurm
`machine` checks of network, Python, GPUs, folders, the hub's cache and checkpoints
`history` checks of a run by its journal
========= ===============================================================================

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
from daskmetrics.core.errors import ConfigError, did_you_mean
from daskmetrics.core.files import RUNS, RunFolder, run_names
from daskmetrics.planning.doctor import facts as collected
from daskmetrics.planning.doctor import history, machine, slurm
from daskmetrics.planning.doctor.facts import Check, Facts, Finding, Severity

__all__ = ["CHECKS", "Facts", "Finding", "Severity", "Subject", "collect", "examine", "subject"]

CHECKS: Mapping[str, Check] = {
    "slurm": slurm.answers,
    "partition": slurm.partition,
    "account": slurm.account,
    "job-limit": slurm.limits,
    "gres": slurm.gres,
    "walltime": slurm.walltime,
    "memory": slurm.memory,
    "cpus": slurm.cpus,
    "task-layout": slurm.task_layout,
    "allocation-layout": slurm.allocation_layout,
    "rehearsal": slurm.rehearsal,
    "interface": machine.interface,
    "open-files": machine.open_files,
    "nccl-interface": machine.nccl_interface,
    "infiniband": machine.infiniband,
    "python": machine.python,
    "same-versions": machine.same_versions,
    "environment": machine.environment_is_shared,
    "threads": machine.threads,
    "gpu-driver": machine.gpu_driver,
    "gpu-memory": machine.gpu_memory,
    "folders": machine.writable,
    "disk-room": machine.room,
    "quota": machine.quota,
    "shared-folders": machine.shared,
    "hub-cache": machine.hub_cache,
    "checkpoints": machine.checkpoints,
    "driver": history.driven,
    "failed-units": history.failed_units,
    "out-of-memory": history.out_of_memory,
    "timeouts": history.timeouts,
    "deaths": history.deaths,
    "slow-node": history.slow_node,
    "waiting": history.waiting,
}


@dataclass(frozen=True)
class Subject:
    """What is checked: a profile, and the experiment and run that it belongs to, if any."""

    profile: Cluster
    config: Config | None
    run: RunFolder
    is_run: bool


def subject(text: str) -> Subject:
    """The subject that the command line names: a run, an experiment's YAML, or a profile, by name
    or file.
    """
    path = Path(text)
    run = RunFolder(path)
    if run.journal.is_file():
        if not run.config.is_file() or not _has_models(run.config):
            return Subject(Cluster(), None, run, True)
        config = configuration.load(run.config)
        return Subject(config.cluster, config, run, True)
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
        raise ConfigError(
            f"{error}{did_you_mean(text, names)} Runs in '{RUNS}': {', '.join(names)}."
        ) from None


def _has_models(path: Path) -> bool:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"'{path}' cannot be read as YAML: {error}") from None
    return isinstance(data, Mapping) and "models" in data


def collect(subject: Subject) -> Facts:
    """Collect the facts of a subject."""
    profile = subject.profile
    suites = collected.suites(subject.config)
    return Facts(
        profile=profile,
        here=collected.this_machine(),
        slurm=collected.slurm_facts(profile) if profile.kind == "slurm" else None,
        folders=collected.folders(profile, subject.run),
        quota=collected.printed("quota", "-w"),
        prefix=Path(sys.prefix),
        prefix_kind=collected.file_system(Path(sys.prefix)),
        hub=collected.hub_facts(subject.config, suites),
        suites=suites,
        history=collected.history(subject.run) if subject.is_run else None,
    )


def examine(facts: Facts) -> dict[str, Finding | None]:
    """The findings of all checks, by name; None for those that do not apply."""
    return {name: check(facts) for name, check in CHECKS.items()}
