from __future__ import annotations

import errno
import importlib
import os
import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError

import daskmetrics as dm
from daskmetrics.core.errors import ClusterLostError, ConfigError, StorageError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution import Journal
from daskmetrics.execution.map import results as recorded_results
from daskmetrics.execution.map import verify
from daskmetrics.execution.map.api import open_journal, run
from daskmetrics.execution.map.folder import continued, read_map, retry_failed
from daskmetrics.execution.map.source import MapOptions, make_spec
from daskmetrics.execution.map.status import MapStatus
from tests.events import started

WRONG = (
    *({"batch_size": value} for value in (0, "2")),
    *({"seed": value} for value in ("a", 1.5, None)),
    *(
        {"resources": value}
        for value in ({"GPU": "a"}, {"GPU": -1}, {"GPU": float("nan")}, ["GPU"])
    ),
    {"timeout": "soon"},
    {"retries": -1},
    {"version": 3},
)


def twice(item: int) -> int:
    return 2 * item


def drawn(item: int, seed: int) -> int:
    return seed


def leave_a_trace(item: list) -> int:
    folder, number = item
    with (Path(folder) / str(number)).open("a") as file:
        file.write("x")
    return number


def fills_its_quota(item: int) -> int:
    if item == 4:
        raise OSError(errno.ENOSPC, "No space left on device")
    return item


def goes_elsewhere(folder: str) -> str:
    os.chdir(folder)
    return folder


def traces(folder: Path) -> dict[int, int]:
    return {int(path.name): path.stat().st_size for path in folder.iterdir()}


def by_item(results) -> dict:
    return {result.item: (result.status, result.value) for result in results}


def test_each_item_has_one_result(client, tmp_path):
    options = {"batch_size": 4, "seed": 5, "version": "first"}
    results = list(dm.map(twice, range(25), client=client, journal=tmp_path / "run", **options))
    assert by_item(results) == {i: ("ok", 2 * i) for i in range(25)}
    assert sorted(result.index for result in results) == list(range(25))
    assert all(result.worker in ("0", "1") and result.seconds is not None for result in results)
    header, results = read_map(tmp_path / "run")
    assert (header.seed, header.version, header.items) == (5, "first", 25)
    assert [result.value for result in results] == list(range(0, 50, 2))
    with pytest.raises(ConfigError, match="No run in"):
        recorded_results(tmp_path / "none")


def test_a_map_starts_workers_and_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time, nothing is left to do
        values = sorted(result.value for result in dm.map(twice, range(3)))
        assert values == [0, 2, 4]
    assert (tmp_path / "runs" / "twice" / "journal.jsonl").exists()
    with pytest.raises(ConfigError, match="client or cluster"):
        list(dm.map(twice, range(3), client=3, journal="never"))
    assert not Path("never").exists()


def test_a_scheduler_lost_while_counts_are_published_ends_no_map(client, tmp_path, monkeypatch):
    published = []

    def lost(self, topic, msg):
        published.append(msg)
        raise CommClosedError("Connection reset by peer")

    monkeypatch.setattr(type(client), "log_event", lost)
    results = list(dm.map(twice, range(4), client=client, journal=tmp_path))
    assert by_item(results) == {i: ("ok", 2 * i) for i in range(4)}
    assert published[-1]["counts"] == {"ok": 4}


def test_a_scheduler_lost_while_the_function_is_checked_is_named(client, tmp_path, monkeypatch):
    submit = type(client).submit

    def lost(self, *args, **options):
        future = submit(self, int, resources={"none": 1}, pure=False)
        self.cancel([future])  # as a client does that loses its scheduler
        return future

    monkeypatch.setattr(type(client), "submit", lost)
    with pytest.raises(ClusterLostError, match="The scheduler was lost"):
        list(dm.map(twice, range(4), client=client, journal=tmp_path))


def test_the_disk_is_waited_for_once_an_interval(client, tmp_path, monkeypatch):
    waited = []
    monkeypatch.setattr("daskmetrics.execution.journal.os.fsync", waited.append)
    options = {"batch_size": 2, "checkpoint_interval": 20}
    results = list(dm.map(twice, range(40), client=client, journal=tmp_path, **options))
    assert by_item(results) == {i: ("ok", 2 * i) for i in range(40)}
    # two to open, the items, the header, two intervals, the end; 20 batches
    assert len(waited) <= 9
    length = int((tmp_path / "journal.mark").read_text().split()[0], 16)
    assert length == (tmp_path / "journal.jsonl").stat().st_size


def test_what_was_recorded_comes_first_and_does_not_run_again(client, tmp_path):
    trace, folder = tmp_path / "trace", tmp_path / "run"
    trace.mkdir()
    values = [[str(trace), i] for i in range(100)]
    results = dm.map(leave_a_trace, values, client=client, journal=folder, batch_size=2)
    first = [next(results) for _ in range(5)]
    results.close()  # running batches finish
    recorded = recorded_results(folder)
    assert 5 <= len(recorded) < 100
    assert {result.key for result in first} <= {result.key for result in recorded}
    again = list(dm.map(leave_a_trace, values, client=client, journal=folder, batch_size=20))
    assert [result.key for result in again[: len(recorded)]] == [r.key for r in recorded]
    assert traces(trace) == dict.fromkeys(range(100), 1)
    assert verify(folder, sample=0).duplicates == ()


def test_after_an_edit_results_are_computed_again_or_kept(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits within a second
    path = tmp_path / "edited_again.py"
    messages: list[str] = []

    def run_with(factor: int, **options) -> list:
        path.write_text(f"def step(item): return {factor} * item\n")
        module = importlib.reload(importlib.import_module("edited_again"))
        spec = make_spec(module.step, [1, 2], MapOptions(), **options)
        with open_journal(tmp_path / "run") as journal:
            results = run(continued(spec, journal.entries), None, journal, say=messages.append)
        return [result.value for result in results]

    assert run_with(2) == run_with(2) == [2, 4] and not messages
    assert run_with(3) == [3, 6] and "has changed. 2 recorded results of version" in messages[0]
    kept = re.search(r"--version (\w+) ", messages[0]).group(1)
    assert run_with(4, version=kept) == [2, 4] and len(messages) == 1


def test_failed_items_of_a_mended_function_run_again_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "mended_later.py"

    def run_with(text: str, retry: bool = False) -> list:
        path.write_text(f"def step(item): return {text}\n")
        module = importlib.reload(importlib.import_module("mended_later"))
        with open_journal(tmp_path / "run") as journal:
            spec = make_spec(module.step, [0, 1, 2], MapOptions(retries=0))
            spec = continued(spec, journal.entries, retry)
            if retry:
                retry_failed(spec, journal)
            return [result.value for result in run(spec, None, journal)]

    assert run_with("2 / item") == [None, 2, 1]
    mended = "3 / item if item else 0"
    assert run_with(mended, retry=True) == [0, 2, 1]
    assert run_with(mended) == [0, 2, 1]  # also without the option


def test_serial_and_parallel_give_the_same_records(client, tmp_path):
    spec = make_spec(drawn, range(12), MapOptions(batch_size=5))
    with open_journal(tmp_path / "serial") as journal:
        serial = run(spec, None, journal)
    parallel = run(spec, client, Journal(tmp_path / "journal.jsonl", tmp_path / "lock"))
    assert {r.key: r.value for r in serial} == {r.key: r.value for r in parallel}
    assert len({r.value for r in serial}) == 12


def test_an_item_that_a_call_changes_stays_the_same_for_others(tmp_path):
    def grow(item: list) -> int:
        item.append(0)
        return len(item)

    spec = make_spec(grow, [[1]] * 3, MapOptions(batch_size=3))
    with open_journal(tmp_path) as journal:
        assert [result.value for result in run(spec, None, journal)] == [2] * 3


def test_an_item_that_is_changed_after_it_was_read_is_refused(tmp_path):
    def refilled():
        buffer = np.zeros(2)
        for number in range(3):
            buffer[0] = number
            yield buffer

    spec = make_spec(np.sum, refilled(), MapOptions(batch_size=3), version="1")
    with (
        open_journal(tmp_path) as journal,
        pytest.raises(ConfigError, match=r"Item 0 .* was changed after it was read"),
    ):
        run(spec, None, journal)


def test_a_map_stays_in_its_folder_if_the_current_folder_changes(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    others = [tmp_path / name for name in "abc"]
    for other in others:
        other.mkdir()
    with open_journal("serial") as journal:
        run(make_spec(goes_elsewhere, map(str, others), MapOptions(batch_size=1)), None, journal)
    assert len(recorded_results(tmp_path / "serial")) == 3
    monkeypatch.chdir(tmp_path)
    results = dm.map(twice, range(20), client=client, journal="parallel", batch_size=1)
    monkeypatch.chdir(others[0])
    for result in results:
        os.chdir(others[result.index % 3])
    assert len(recorded_results(tmp_path / "parallel")) == 20


def test_an_item_without_room_fails_alone_in_this_process_too(tmp_path, monkeypatch):
    spec = make_spec(fills_its_quota, range(6), MapOptions(batch_size=3, retries=0))
    with open_journal(tmp_path) as journal:
        results = run(spec, None, journal)
    assert [result.index for result in results if not result.ok] == [4]
    assert "No space left" in results[4].reason and results[4].status == "error"
    monkeypatch.setattr("daskmetrics.execution.map.function.has_room", lambda folder: False)
    with open_journal(tmp_path) as journal, pytest.raises(StorageError, match="Cannot write what"):
        retry_failed(spec, journal)
        run(spec, None, journal)


def test_a_module_missing_on_the_workers_is_reported_at_once(client, tmp_path, monkeypatch):
    (tmp_path / "only_on_the_client.py").write_text("def step(item): return item\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_on_the_client

    message = r"cannot load only_on_the_client:step: ModuleNotFoundError.*Install"
    with pytest.raises(ConfigError, match=message):
        list(dm.map(only_on_the_client.step, range(3), client=client, journal=tmp_path / "run"))


def test_workers_that_have_imported_other_code_are_refused(client, tmp_path, monkeypatch):
    path = tmp_path / "edited_later.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second
    path.write_text("def step(item): return item\n")
    client.run(exec, f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    module = importlib.import_module("edited_later")
    folder = tmp_path / "run"
    assert [r.value for r in dm.map(module.step, [7], client=client, journal=folder)] == [7]
    client.run(importlib.import_module, "edited_later")  # also where no item ran
    path.write_text("def step(item): return 100 * item\n")
    importlib.reload(module)
    with pytest.raises(ConfigError, match=r"imported other code of edited_later:step .* restart"):
        list(dm.map(module.step, [7], client=client, journal=folder))
    assert list(dm.map(module.step, [7], client=client, journal=folder, version="mine"))
    client.run(exec, f"import sys; sys.path.remove({str(tmp_path)!r})")


def test_a_module_that_kills_its_worker_is_reported(client, tmp_path, monkeypatch):
    path = tmp_path / "ends_its_worker.py"
    path.write_text(
        f"import os\nif os.getpid() != {os.getpid()}: os._exit(1)\ndef step(item): return item\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import ends_its_worker

    client.run(lambda: __import__("sys").path.insert(0, str(tmp_path)))
    monkeypatch.setattr("daskmetrics.execution.map.api.PROBES", 1)
    with pytest.raises(ConfigError, match="cannot load ends_its_worker:step: KilledWorker"):
        list(dm.map(ends_its_worker.step, range(3), client=client, journal=tmp_path / "run"))


def test_a_resource_that_no_worker_offers_is_reported(client, tmp_path, monkeypatch):
    monkeypatch.setattr("daskmetrics.execution.map.api.PROBE_SECONDS", 1.0)
    with pytest.raises(ConfigError, match=r"No worker answered .*{'TPU': 1}"):
        list(dm.map(twice, range(3), client=client, journal=tmp_path / "run", resources={"TPU": 1}))


@pytest.mark.parametrize("protocol", ["inproc://", "tcp://"])
def test_workers_that_are_threads_of_the_caller_are_refused(tmp_path, protocol):
    """An item that ends its process would end the user's Python."""
    with (
        LocalCluster(1, processes=False, protocol=protocol, dashboard_address=":0") as cluster,
        Client(cluster) as given,
    ):
        for client in (given, cluster):
            with pytest.raises(ConfigError, match="cluster: its workers are threads of this"):
                list(dm.map(twice, [9], client=client, journal=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_wrong_journal_or_option_is_refused_before_any_start(client, tmp_path):
    for wrong in WRONG:
        with pytest.raises(ConfigError):
            dm.map(twice, range(3), client=client, journal=tmp_path / "run", **wrong)
    for items in ("items.jsonl", pd.DataFrame({"a": [1]})):
        with pytest.raises(ConfigError, match=r"Give a list of items; of a table"):
            dm.map(twice, items, client=client, journal=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with open_journal(tmp_path) as journal:
        journal.append(started())
        for wrong in (journal, 3):
            with pytest.raises(ConfigError, match=r"journal: got a .*; pass the folder"):
                list(dm.map(twice, range(3), client=client, journal=wrong))
    with pytest.raises(ConfigError, match="holds an experiment"):
        list(dm.map(twice, range(3), client=client, journal=tmp_path))


def long_text(item: int) -> str:
    return f"{item:04}" * 1000


def test_results_stay_in_the_journal_and_not_in_memory(tmp_path):
    spec = make_spec(long_text, range(2000), MapOptions(batch_size=10))
    returned = 4000 * len(spec.items)
    tracemalloc.start()
    try:
        with open_journal(tmp_path) as journal:
            results = run(spec, None, journal)
            assert tracemalloc.get_traced_memory()[1] < returned
            assert [len(result.value) for result in results] == [4000] * 2000
        tracemalloc.reset_peak()
        assert MapStatus.of(RunFolder(tmp_path)).counts == {"ok": 2000}
        assert tracemalloc.get_traced_memory()[1] < 2 * returned
    finally:
        tracemalloc.stop()
    assert results[7].value == long_text(7) and len(results) == 2000
