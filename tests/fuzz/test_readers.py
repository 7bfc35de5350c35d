"""Broken and hostile input of every reader ends in a value or in one of our errors, soon and in
little memory.

DASKMETRICS_CASES is the number of cases of each reader. The summary of all readers: python -m
tests.fuzz.test_readers
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.table import Table
from tests.fuzz.listed import LISTED
from tests.fuzz.mutate import mutated, mutations
from tests.fuzz.readers import Reader, read_slurm, readers, write_files

CASES = int(os.environ.get("DASKMETRICS_CASES", "25"))
SECONDS, BYTES = 2.0, 500e6  # of a case: processor time, and growth of the memory of this process
NAMES = tuple(readers(Path(tempfile.mkdtemp())))


class Bench:
    """A folder with the valid files of a reader, of which one is changed at a time, and what came
    of it.
    """

    def __init__(self, reader: Reader, folder: Path) -> None:
        self.reader, self.folder = reader, folder
        self.outcomes: Counter[str] = Counter()
        self.slowest, self.largest = 0.0, 0.0  # seconds, bytes
        packed = {name: reader.pack(content) for name, content in reader.files.items()}
        write_files(folder, packed)
        reader.read(folder)  # the valid files are read; what is imported for that is not measured

    def case(self, target: int, changes: list[tuple[int, int, int]]) -> None:
        name = self.reader.targets[target % len(self.reader.targets)]
        path = self.folder / name
        whole = path.read_bytes()
        path.write_bytes(self.reader.pack(mutated(self.reader.files[name], changes)))
        before, start = _memory(reset=True), time.process_time()
        outcome = "traceback"
        try:
            with _at_most(10 * SECONDS), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.reader.read(self.folder)
            outcome = "value"
        except DaskmetricsError as error:
            assert 0 < len(str(error)) < 20_000, f"a message of {len(str(error)):,} characters"
            outcome = "error"
        finally:
            seconds, grown = time.process_time() - start, _memory() - before
            self.outcomes[outcome] += 1
            self.slowest = max(self.slowest, seconds)
            self.largest = max(self.largest, grown)
            path.write_bytes(whole)
        assert seconds < SECONDS and grown < BYTES, f"{seconds:.1f} s, {grown / 1e6:.0f} MB"

    def row(self, name: str) -> tuple[str, ...]:
        counts = (self.outcomes[kind] for kind in ("value", "error", "traceback"))
        cases = (self.outcomes.total(), *counts)
        return name, *map(str, cases), f"{self.slowest:.2f} s", f"{self.largest / 1e6:.0f} MB"


def _memory(reset: bool = False) -> int:
    """Bytes of this process at most since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


@contextmanager
def _at_most(seconds: float, timer: int = signal.ITIMER_VIRTUAL) -> Iterator[list[str]]:
    """End what takes more processor time, or time, and let what asks for all memory fail.

    What ended is listed, too: a reader may take the error for one of the file.
    """
    ended: list[str] = []

    def stop(*_: object) -> None:
        ended.append(f"more than {seconds:.0f} s")
        raise TimeoutError(ended[0])

    number = {signal.ITIMER_VIRTUAL: signal.SIGVTALRM, signal.ITIMER_REAL: signal.SIGALRM}[timer]
    limits = resource.getrlimit(resource.RLIMIT_AS)
    virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (virtual + 8 * 2**30, limits[1]))
    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield ended
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def run(bench: Bench, cases: int, first: int | None = None) -> None:
    """Read this many mutations; the same ones each time unless there is a seed ``first``."""

    @settings(
        max_examples=cases,
        derandomize=first is None,
        database=None,
        deadline=None,
        phases=[Phase.generate] if first is not None else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 99), mutations)
    def check(target: int, changes: list[tuple[int, int, int]]) -> None:
        bench.case(target, changes)

    (check if first is None else seed(first)(check))()


@pytest.fixture(params=NAMES)
def bench(request, tmp_path, monkeypatch) -> Bench:
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "scratch").mkdir()
    return Bench(readers(tmp_path / "scratch")[request.param], tmp_path / "files")


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory by /proc")
def test_broken_input_is_a_value_or_one_of_our_errors(bench):
    run(bench, CASES)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(bench):
    if bench.reader.read is read_slurm:
        pytest.skip("reads what a command prints, and no file")
    for target in bench.reader.targets:
        path = bench.folder / target
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with _at_most(10, signal.ITIMER_REAL) as waited, suppress(DaskmetricsError):
            bench.reader.read(bench.folder)
        assert not waited, target
        path.unlink()
        path.write_bytes(content)


@pytest.mark.parametrize("name", LISTED)
def test_no_input_that_means_other_than_it_says_passes_silently(name, tmp_path):
    for number in range(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        with suppress(DaskmetricsError):
            assert LISTED[name](folder, random.Random(f"{name} {number}")), number


def main(cases: int = 1000, first: int = 0) -> Table:
    """The summary of all readers; a reader that fails says so and is left."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DASKMETRICS_CACHE"] = f"{folder}/cache"
        for number, (name, reader) in enumerate(readers(Path(folder)).items()):
            bench = Bench(reader, Path(tempfile.mkdtemp(dir=folder)))
            try:
                run(bench, cases, first + number)
            except Exception:
                traceback.print_exc()
            rows.append(bench.row(name))
    return Table(
        ("reader", "cases", "values", "errors", "tracebacks", "slowest", "largest"), tuple(rows)
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:])).show()
