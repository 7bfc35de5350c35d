from __future__ import annotations

import pytest

from daskmetrics.cluster.selftest import Note, SelfTestStatus, check_device, run_checks
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.execution import handshake as handshake


def results_of(client, folder, require_same=handshake.require_same):
    profile = Cluster(logs=str(folder))
    return {
        each.name: each for each in run_checks(client, profile, handshake.question(), require_same)
    }


def test_a_sound_worker_passes_every_check(client, tmp_path):
    results = results_of(client, tmp_path)
    network = ["network to worker", "network to driver"]
    assert list(results) == [
        "versions",
        "import",
        "device",
        "transports",
        "clock",
        "shared folder",
        *network,
    ]
    assert {each.status for each in results.values()} == {SelfTestStatus.OK}
    assert all(each.seconds > 0 for each in results.values())
    assert (
        "torch" in results["versions"].message and "8 MiB" in results["network to driver"].message
    )
    assert all(
        name in results["transports"].message for name in ("MPI", "UCX", "NCCL", "InfiniBand")
    )
    assert not list(tmp_path.iterdir())


def test_a_check_that_fails_does_not_hide_the_others(client, tmp_path):
    def refuse(worker, versions):
        raise ConfigError("Worker has torch 1.0, the driver has torch 2.0.")

    (tmp_path / "file").touch()
    results = results_of(client, tmp_path / "file", refuse)
    assert (
        results["versions"].status is SelfTestStatus.FAILED
        and "torch 1.0" in results["versions"].message
    )
    assert (
        results["shared folder"].status is SelfTestStatus.FAILED
        and "exists" in results["shared folder"].message
    )
    assert results["network to worker"].status is SelfTestStatus.OK


@pytest.mark.parametrize(
    ("visible", "devices", "driver", "error", "message"),
    [
        ("3", ["NVIDIA L40S"], True, None, "has GPU 3: NVIDIA L40S"),
        ("0,1", ["A", "A"], True, ConfigError, "sees 2 GPUs"),
        ("0", [], True, ConfigError, "build of torch with CUDA"),
        ("0", [], False, Note, "no driver"),
        (None, [], False, ConfigError, "its job has no GPU"),
    ],
    ids=["one", "shared", "torch without CUDA", "no driver", "none"],
)
def test_a_worker_should_see_exactly_one_gpu(visible, devices, driver, error, message):
    seen = {"visible": visible, "devices": devices, "driver": driver}
    if error is None:
        assert check_device(seen, needs_gpu=True) == message
    else:
        with pytest.raises(error, match=message):
            check_device(seen, needs_gpu=True)
    assert check_device(seen, needs_gpu=False).startswith("CPU")
