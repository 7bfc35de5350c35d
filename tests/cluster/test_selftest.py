from __future__ import annotations

import pytest

from daskmetrics.cluster.selftest import check_device, run_checks
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.execution import handshake as handshake


def results_of(client, folder, require_same=handshake.require_same):
    results = run_checks(client, Cluster(logs=str(folder)), handshake.question(), require_same)
    return {result.name: result for result in results}


def test_a_sound_worker_passes_every_check(client, tmp_path):
    results = results_of(client, tmp_path / "slurm-logs")
    assert " ".join(results) == "versions device transports clock shared folder network"
    assert {result.status for result in results.values()} == {"ok"}
    assert all(result.seconds > 0 for result in results.values())
    assert "torch" in results["versions"].message and "8 MiB" in results["network"].message
    for name in ("MPI", "UCX", "NCCL", "InfiniBand"):
        assert name in results["transports"].message
    assert not list(tmp_path.iterdir())


def test_a_check_that_fails_does_not_hide_the_others(client, tmp_path):
    def refuse(worker, versions):
        raise ConfigError("Worker has torch 1.0, the driver has torch 2.0.")

    (tmp_path / "file").touch()
    results = results_of(client, tmp_path / "file", refuse)
    assert "torch 1.0" in results["versions"].message
    assert "exists" in results["shared folder"].message
    failed = [name for name, result in results.items() if result.status == "failed"]
    assert failed == ["versions", "shared folder"]


@pytest.mark.parametrize(
    ("visible", "devices", "driver", "status", "message"),
    [
        ("3", ["NVIDIA L40S"], True, "ok", "has GPU 3: NVIDIA L40S"),
        ("0,1", ["A", "A"], True, "failed", "sees 2 GPUs"),
        ("0", [], True, "failed", "build of torch with CUDA"),
        ("0", [], False, "note", "no driver"),
        (None, [], False, "failed", "its job has no GPU"),
    ],
    ids=["one", "shared", "torch without CUDA", "no driver", "none"],
)
def test_a_worker_should_see_exactly_one_gpu(visible, devices, driver, status, message):
    seen = {"visible": visible, "devices": devices, "driver": driver}
    if status == "failed":
        with pytest.raises(ConfigError, match=message):
            check_device(seen, needs_gpu=True)
    else:
        observed, text = check_device(seen, needs_gpu=True)
        assert observed == status and message in text
    assert check_device(seen, needs_gpu=False)[1].startswith("CPU")
