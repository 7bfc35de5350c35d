"""What is to be mapped, as one value, and the folder that its journal and its items lie in."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version as version_of_package
from pathlib import Path
from typing import Any

from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.execution import Journal
from daskmetrics.execution._journal import read
from daskmetrics.execution.map._function import Function, prepare
from daskmetrics.execution.map._items import Item, is_plain, items
from daskmetrics.execution.map._ledger import Ledger, Result
from daskmetrics.execution.map._source import Options


@dataclass(frozen=True)
class Job:
    """A function, its items, and how they are run.

    Attributes
    ----------
    function : Function
    items : tuple of Item
    options : Options
    seed : int
        Seed of the run; each item's own seed follows from it.
    reference : str or None
        Where the function can be found again, as ``module.py:function``.
    """

    function: Function
    items: tuple[Item, ...]
    options: Options
    seed: int = 0
    reference: str | None = None

    def entry(self) -> dict[str, Any]:
        """Its line in the journal."""
        return {
            "type": "map",
            "function": self.function.name,
            "version": self.function.version,
            "stated": self.function.stated,
            "reference": self.reference,
            "items": len(self.items),
            "seed": self.seed,
            "batch_size": self.options.batch_size,
            "retries": self.options.retries,
            "timeout": self.options.timeout,
            "environment": environment(),
        }


def job(
    function: Callable[..., Any],
    values: Iterable[Any],
    options: Options,
    *,
    seed: int = 0,
    version: str | None = None,
    reference: str | None = None,
) -> Job:
    """A job, checked: nothing was started if this raises.

    Raises
    ------
    ConfigError
        If the function cannot travel, or an item has no content to be known by.
    """
    ready = prepare(function, version)
    return Job(ready, items(values, ready.name, ready.version, seed), options, seed, reference)


def environment() -> dict[str, str]:
    """Versions and machine, as kept beside the values."""
    packages = ("daskmetrics", "distributed", "numpy")
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **{name: version_of_package(name) for name in packages},
    }


def begin(job: Job, journal: Journal) -> None:
    """Write down what is going to be done, and the items, so that the folder tells all without the function.

    Raises
    ------
    ConfigError
        If the folder is that of an experiment.
    """
    if any(entry["type"] == "start" for entry in journal.entries):
        raise ConfigError(f"'{journal.path.parent}' holds an experiment: choose another folder for the map.")
    lines = (
        json.dumps([item.key, item.name, item.value if is_plain(item.value) else None]) + "\n" for item in job.items
    )
    path = _items_file(journal.path.parent)
    fresh = path.with_suffix(".partial")
    fresh.write_text("".join(lines), encoding="utf-8")
    fresh.replace(path)
    journal.append(job.entry())


def give_chance(job: Job, journal: Journal) -> int:
    """Have the items that failed so far tried again, with all retries anew; how many these are."""
    ledger = Ledger(job.items, job.options.retries)
    ledger.replay(journal.entries)
    failed = [result.key for result in ledger.failed()]
    if failed:
        journal.append({"type": "chance", "items": failed})
    return len(failed)


def _items_file(folder: Path) -> Path:
    return folder / "items.jsonl"


def is_map(folder: str | Path) -> bool:
    """Whether a folder is that of a map."""
    return _items_file(Path(folder)).is_file()


@dataclass(frozen=True)
class Recorded:
    """A map as its folder tells it: the header of its last start, its items, and what is known of them."""

    header: Mapping[str, Any]
    items: tuple[Item, ...]
    results: tuple[Result, ...]


def recorded(folder: str | Path) -> Recorded:
    """A map read from its folder; no scheduler is needed.

    Raises
    ------
    ConfigError
        If there is no map in the folder.
    DataError
        If a line is damaged.
    """
    place = RunFolder(Path(folder)).must_exist()
    entries = list(read(place.journal))
    headers = [entry for entry in entries if entry["type"] == "map"]
    if not headers or not _items_file(place.path).is_file():
        raise ConfigError(f"The run in '{place.path}' is no map. Start one with: daskmetrics map module.py:function")
    items = tuple(_read_items(_items_file(place.path)))
    ledger = Ledger(items, headers[-1]["retries"])
    ledger.replay(entries)
    return Recorded(headers[-1], items, tuple(ledger.results()))


def results(folder: str | Path) -> list[Result]:
    """The results of a map, in the order of its items, read from its folder."""
    return list(recorded(folder).results)


def _read_items(path: Path) -> Iterator[Item]:
    for index, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        try:
            key, name, value = json.loads(line)
        except ValueError:
            raise DataError(
                f"Line {index + 1} of '{path}' is damaged. Run the same map again: it writes the file anew."
            ) from None
        yield Item(key, index, value, name, seed=0)
