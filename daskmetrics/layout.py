"""Where a run keeps its files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.errors import ConfigError


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run; everything that is known of the run lies below it."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration in force, presets and profiles written out."""
        return self.path / "config.yaml"

    @property
    def journal(self) -> Path:
        """The truth: every decision and every result, one checksummed line each."""
        return self.path / "journal.jsonl"

    @property
    def store(self) -> Path:
        """The arrays, as a Zarr store that xarray opens."""
        return self.path / "store.zarr"

    @property
    def states(self) -> Path:
        """Pooled states, where the configuration keeps them."""
        return self.path / "states.zarr"

    @property
    def corpus(self) -> Path:
        """The prompts that were measured."""
        return self.path / "corpus.json"

    @property
    def report(self) -> Path:
        return self.path / "report"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    def create(self) -> RunFolder:
        """Make the folder, private to its owner."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self

    def must_exist(self) -> RunFolder:
        """Itself, if a run lies here.

        Raises
        ------
        ConfigError
            If not, naming the runs that lie beside it.
        """
        if not self.journal.is_file():
            parent = self.path.parent
            beside = sorted(p.parent.name for p in parent.glob("*/journal.jsonl")) if parent.is_dir() else []
            there = f" Runs in '{parent}': {', '.join(beside)}." if beside else " Start one with: daskmetrics run"
            raise ConfigError(f"No run in '{self.path}'.{there}")
        return self


def cache_folder() -> Path:
    """Where suites trained for the demo are kept: ``$DASKMETRICS_CACHE``, or ``~/.cache/daskmetrics``."""
    own = os.environ.get("DASKMETRICS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(own or f"{base}/daskmetrics").expanduser()
