"""The process of a worker, as functions find it that start processes or raise anything."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import daskmetrics as dm


class PanicException(BaseException):
    """Derived as what Rust raises through pyo3."""


ERRORS = {
    "panic": PanicException("panicked at src/lib.rs"),
    "cancelled": asyncio.CancelledError(),
    "group": BaseExceptionGroup("two", [KeyboardInterrupt(), SystemExit()]),
    "generator": GeneratorExit(),
    "interrupt": KeyboardInterrupt(),
    "exit": SystemExit(3),
}


def raises(item: list) -> str:
    folder, name = item
    with (Path(folder) / name).open("a") as file:
        file.write("x")
    if name in ERRORS:
        raise ERRORS[name]
    return name


def input_of_child(item: int) -> str:
    return subprocess.run(["cat"], capture_output=True, text=True, check=True).stdout


def in_a_pool(item: int) -> int:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return sum(pool.map(abs, range(item)))


def leaves_a_child(path: str) -> None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    Path(path).write_text(f"{child.pid}")
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_exception_of_any_class_fails_its_item_alone(client, tmp_path):
    items = [[str(tmp_path), name] for name in (*ERRORS, "one", "two")]
    options = {"client": client, "journal": tmp_path / "run", "retries": 1, "batch_size": 4}
    results = {result.item[1]: result for result in dm.map(raises, items, **options)}
    assert {name for name, result in results.items() if result.ok} == {"one", "two"}
    for name, error in ERRORS.items():
        assert results[name].status == "error" and type(error).__name__ in results[name].reason
    calls = {name: (tmp_path / name).stat().st_size for name in results}
    assert calls == {**dict.fromkeys(ERRORS, 2), "one": 1, "two": 1}


def test_a_child_of_an_item_reads_no_input(client, tmp_path):
    [result] = dm.map(input_of_child, [0], client=client, journal=tmp_path)
    assert (result.status, result.value) == ("ok", "")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_item_may_use_processes(client, tmp_path):
    [result] = dm.map(in_a_pool, [4], client=client, journal=tmp_path)
    assert (result.status, result.value) == ("ok", 6)


def test_processes_of_an_item_end_with_its_worker(client, tmp_path):
    path = tmp_path / "pid"
    options = {"client": client, "journal": tmp_path / "run", "retries": 0}
    [result] = dm.map(leaves_a_child, [str(path)], **options)
    assert result.status == "quarantined"
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(path.read_text())).wait(timeout=60)
