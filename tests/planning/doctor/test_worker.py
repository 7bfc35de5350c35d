from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.config import Cluster
from daskmetrics.execution import handshake
from daskmetrics.planning.doctor.worker import check_device, examine


def findings_of(client, folder):
    return examine(client, Cluster(logs=str(folder)))


def test_a_sound_worker_passes_every_check(client, tmp_path):
    findings = findings_of(client, tmp_path / "slurm-logs")
    assert " ".join(findings) == "versions device transports clock same-folder network"
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
    assert failed == ["versions", "same-folder"]


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
    assert "OK    worker               one has arrived after" in done.stdout
    assert "OK    versions" in done.stdout and "0 failed" in done.stdout


def test_doctor_says_why_no_worker_arrived(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.yaml").write_text("{kind: existing, address: missing.json}")
    words = ["doctor", "site.yaml", "--worker", "--json"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    worker = json.loads(done.stdout)["worker"]
    assert done.exit_code == 1 and worker["severity"] == "failure"
    assert "dask scheduler --scheduler-file" in worker["message"]
