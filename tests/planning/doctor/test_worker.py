from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.config import Cluster
from daskmetrics.execution import handshake
from daskmetrics.planning.doctor import worker
from daskmetrics.planning.doctor.worker import check_device, examine


def findings_of(client, folder):
    return examine(client, Cluster(logs=str(folder)))


def test_a_sound_worker_passes_every_check(client, tmp_path):
    findings = findings_of(client, tmp_path / "slurm-logs")
    names = "versions device transports clock same-folder network exchange"
    assert " ".join(findings) == names
    assert findings["exchange"].message.startswith("2 ranks sum 64 MiB with ")
    assert {finding.severity for finding in findings.values()} == {"ok"}
    assert "torch" in findings["versions"].message and "8 MiB" in findings["network"].message
    for name in ("MPI", "UCX", "NCCL", "InfiniBand"):
        assert name in findings["transports"].message
    assert not list(tmp_path.iterdir())


def test_a_check_that_fails_does_not_hide_the_others(client, tmp_path, monkeypatch):
    monkeypatch.setattr(handshake, "versions", lambda: {"torch": "2.0"})
    (tmp_path / "file").touch()
    findings = findings_of(client, tmp_path / "file")
    assert "the driver has torch 2.0" in findings["versions"].message
    assert "exists" in findings["same-folder"].message
    failed = [name for name, finding in findings.items() if finding.severity == "failure"]
    assert failed == ["versions", "same-folder", "exchange"]


def test_a_network_that_does_not_exist_blocks_the_exchange(client, tmp_path):
    profile = Cluster(logs=str(tmp_path), interface="ib7")
    finding = examine(client, profile)["exchange"]
    assert finding.severity == "failure"
    assert "GLOO_SOCKET_IFNAME=ib7, but this machine has " in finding.message
    assert finding.message.endswith("logs'."), "there is nothing to resume"


def test_ranks_that_do_not_meet_are_named_and_ended(client, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "RANK", ("sleep", "1000"))
    monkeypatch.setattr(worker, "JOINED_WITHIN", 3.0)
    finding = findings_of(client, tmp_path)["exchange"]
    assert finding.severity == "failure"
    for fact in ("0 of 2 ranks", "rank 1 (node ", "interface lo", "set cluster.interface"):
        assert fact in finding.message


@pytest.mark.parametrize(
    ("visible", "devices", "driver", "severity", "words"),
    [
        ("3", ["NVIDIA L40S"], True, "ok", "has GPU 3: NVIDIA L40S"),
        ("0,1", ["A", "A"], True, "failure", "sees 2 GPUs"),
        ("0", [], True, "failure", "build of torch with CUDA"),
        ("0", [], False, "warning", "no driver"),
        (None, [], False, "failure", "its job has no GPU"),
    ],
    ids=["one", "shared", "torch without CUDA", "no driver", "none"],
)
def test_a_worker_should_see_exactly_one_gpu(visible, devices, driver, severity, words):
    seen = {"visible": visible, "devices": devices, "driver": driver}
    finding = check_device(seen, needs_gpu=True)
    assert finding.severity == severity and words in f"{finding.message} {finding.remedy}"
    assert bool(finding.remedy) == (severity != "ok")
    assert check_device(seen, needs_gpu=False).message.startswith("CPU")


def test_doctor_starts_a_worker_and_shows_what_it_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["doctor", "local", "--worker"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "OK    worker               1 worker arrived after" in done.stdout
    assert "OK    versions" in done.stdout and "0 failed" in done.stdout


def test_doctor_says_why_no_worker_arrived(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text("{kind: existing, address: missing.json}")
    words = ["doctor", "site.yaml", "--worker", "--json"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    finding = json.loads(done.stdout)["worker"]
    assert done.exit_code == 1 and finding["severity"] == "failure"
    assert "dask scheduler --scheduler-file" in finding["message"]
