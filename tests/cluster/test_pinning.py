from __future__ import annotations

import multiprocessing
import os
import time

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.scheduler import KilledWorker

from daskmetrics.cluster import Pins, pin_workers, require
from daskmetrics.cluster.pinning import claim, cpus_near
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.machine import visible_gpus

CPUS = len(os.sched_getaffinity(0))


def hold(folder, offered, count, pipe):
    pipe.send(claim("cpu", offered, count, folder))
    pipe.recv()


def test_claims_are_disjoint_and_end_with_their_process(tmp_path):
    offered = ["0", "1", "2", "3", "4"]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(tmp_path, offered, 2, theirs), daemon=True)
    process.start()
    theirs.close()  # so that `recv` fails if the process dies
    assert ours.recv() == ["0", "1"]
    assert claim("cpu", offered, 2, tmp_path) == ["2", "3"]
    with pytest.raises(ConfigError, match=r"This worker needs 2 cpus; of 5, 1 are free\."):
        claim("cpu", offered, 2, tmp_path)
    process.kill()
    process.join()
    assert claim("cpu", offered, 2, tmp_path) == ["0", "1"]


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: -1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        claim("cpu", ["0"], 1, tmp_path)


def test_a_link_of_another_user_to_ones_own_folder_is_refused(tmp_path):
    if os.getuid():
        pytest.skip("only root can make a link of another user")
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "link", 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        claim("cpu", ["0"], 1, tmp_path / "link")
    assert not list((tmp_path / "mine").iterdir())


def test_the_cpus_near_a_gpu_are_read_from_the_system(tmp_path):
    for minor, bus, cpus in ((0, "0000:17:00.0", "0-1,4"), (1, "0000:ca:00.0", "2-3")):
        driver = tmp_path / "proc/driver/nvidia/gpus" / bus
        pci = tmp_path / "sys/bus/pci/devices" / bus
        driver.mkdir(parents=True)
        pci.mkdir(parents=True)
        facts = f"Model: \t A100\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
        (driver / "information").write_text(facts)
        (pci / "local_cpulist").write_text(f"{cpus}\n")
    near = [cpus_near(gpu, tmp_path) for gpu in ("0", "1", "GPU-1", "7")]
    assert near == [{"0", "1", "4"}, {"2", "3"}, {"2", "3"}, set()]


def test_more_than_the_machine_has_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match=f"{CPUS} CPUs each need {10 * CPUS}, this machine"):
        require(Pins(cpus=CPUS), workers=10)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert visible_gpus() == ["2", "5"]
    require(Pins(gpus=1), workers=2)
    with pytest.raises(ConfigError, match="1 GPUs each need 3, this machine offers 2"):
        require(Pins(gpus=1), workers=3)


@pytest.mark.slow  # a worker dies and is started again
@pytest.mark.skipif(CPUS < 2, reason="needs two CPUs")
def test_workers_keep_their_cpus_and_gpus_also_after_a_restart(monkeypatch, tmp_path):
    # no GPU is used: the variable only names them
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def pinned(dask_worker):
        return dask_worker.name, os.sched_getaffinity(0), os.environ["CUDA_VISIBLE_DEVICES"]

    settings = {"distributed.scheduler.allowed-failures": 0}
    # another port for the dashboard: the cluster that other tests share uses the default one
    places = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, **places) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        results = pin_workers(client, Pins(cpus=1, gpus=1))
        assert [each["problem"] for each in results.values()] == [None, None]
        before = {name: (cpus, gpus) for name, cpus, gpus in client.run(pinned).values()}
        assert before[0][0].isdisjoint(before[1][0]) and {before[0][1], before[1][1]} == {"0", "1"}
        with pytest.raises(KilledWorker):
            client.submit(os._exit, 1, workers=[0], pure=False).result()
        deadline = time.monotonic() + 60
        while (
            len(after := client.run(pinned, on_error="ignore")) < 2 and time.monotonic() < deadline
        ):
            time.sleep(0.1)
        assert {name: (cpus, gpus) for name, cpus, gpus in after.values()} == before
