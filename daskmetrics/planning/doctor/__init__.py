"""Checks before or after a run of what can fail, each with a remedy: of a profile, an experiment or
a run.

======== ==================================================
`facts`  the facts that checks read, and their collection
`checks` the checks, and the findings that they return
======== ==================================================
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from daskmetrics import config as configuration
from daskmetrics.config import Cluster, Config
from daskmetrics.core.errors import ConfigError, did_you_mean
from daskmetrics.core.files import RUNS, RunFolder, require_regular, run_names
from daskmetrics.planning.doctor import facts as collected
from daskmetrics.planning.doctor.checks import CHECKS, Finding, Severity
from daskmetrics.planning.doctor.facts import Facts, FolderFacts

__all__ = ["CHECKS", "Facts", "Finding", "Severity", "Subject", "collect", "examine", "subject"]


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
    require_regular(path)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"'{path}' cannot be read as YAML: {error}") from None
    return isinstance(data, Mapping) and "models" in data


def collect(subject: Subject) -> Facts:
    """Collect the facts of a subject."""
    profile = subject.profile
    prefix = Path(sys.prefix)
    facts = Facts(
        profile=profile,
        here=collected.this_machine(),
        folders=collected.folders(profile, subject.run),
        environment=FolderFacts("environment", prefix, kind=collected.file_system(prefix)),
    )
    if profile.kind == "slurm":
        facts = replace(facts, slurm=collected.slurm_facts(profile))
    if subject.config:
        facts = replace(facts, models=collected.models(subject.config))
    if subject.is_run:
        facts = replace(facts, history=collected.history(subject.run))
    return facts


def examine(facts: Facts) -> dict[str, Finding | None]:
    """The findings of all checks, by name; None for those that do not apply."""
    return {name: check(facts) for name, check in CHECKS.items()}
