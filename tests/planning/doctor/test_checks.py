"""Every check passes on the facts of a sound site, and has a remedy where one fact is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from daskmetrics.checkpoints.locations import LocatedSuite
from daskmetrics.cluster.slurm.refusals import Refusal
from daskmetrics.config import Cluster
from daskmetrics.core.files import RunFolder
from daskmetrics.core.machine import infiniband_ports
from daskmetrics.domain.events import RunFinished, UnitsRetried
from daskmetrics.domain.names import Suite
from daskmetrics.execution import Journal, Record
from daskmetrics.planning.doctor import CHECKS, Facts, examine
from daskmetrics.planning.doctor.facts import (
    FolderFacts,
    MachineFacts,
    ModelFacts,
    RunHistory,
    SlurmFacts,
)
from daskmetrics.planning.doctor.facts import history as journal_of
from tests.events import attempt_failed, joined, started

PROFILE = {
    "kind": "slurm",
    "workers": 8,
    "partition": "gpu",
    "gpu_type": "l40s",
    "interface": "ib0",
    "account": "abc",
    "memory": "16GiB",
    "threads": 4,
    "directives": ["--exclusive"],
}
HERE = MachineFacts(
    "login1",
    {"lo": ("127.0.0.1",), "ib0": ("10.0.0.1",), "usb0": ()},
    cpus=16,
    files=4096,
    variables={"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
    gpus=("NVIDIA L40S",),
    gpu_driver="550.54",
    torch="2.6.0+cu126",
    gpu_used=(0.01,),
    infiniband={"mlx5_0:1": "ACTIVE, 200 Gb/sec (4X HDR), InfiniBand"},
)
SLURM = SlurmFacts(partitions={"gpu": True}, max_jobs=100, cpus_per_gpu=8.0, reached_by="ib0")
FOLDERS = tuple(
    FolderFacts(what, Path("/data") / what, None, 10**12, 10**7, "nfs4")
    for what in ("run", "cache", "logs", "scratch")
)
LOCATED = LocatedSuite(Suite("m", ("step1", "step2"), (0, 1), 1), (), 8)
WORKERS = tuple(joined(f"w{i}", f"n{i}") for i in (0, 1))
RECORDS = tuple(
    Record(f"k{i}", f"m@step{i}", "measure", "ok", {}, seconds=10.0, worker=f"w{i % 2}")
    for i in range(12)
)
HISTORY = RunHistory(Path("runs/x"), (started(), *WORKERS, RunFinished("k", 70.0)), RECORDS)
SOUND = Facts(
    profile=Cluster(**PROFILE),
    here=HERE,
    slurm=SLURM,
    folders=FOLDERS,
    environment=FolderFacts("environment", Path("/data/env"), kind="nfs4"),
    models=ModelFacts((LOCATED,), hub=FolderFacts("hub", Path("/data/hub"))),
    history=HISTORY,
)


def profile(**changes):
    return replace(SOUND, profile=Cluster(**{**PROFILE, **changes}))


def wrong(name, **changes):
    return replace(SOUND, **{name: replace(getattr(SOUND, name), **changes)})


def folder(what, **changes):
    folders = [replace(f, **changes) if f.what == what else f for f in FOLDERS]
    return replace(SOUND, folders=tuple(folders))


def lost(status):
    record = Record("x", "m@step99", "measure", status, reason="it broke")
    return wrong("history", records=(*RECORDS, record))


def variables(**changes):
    return wrong("here", variables={**HERE.variables, **changes})


def attempted(**fields):
    return wrong("history", entries=(*HISTORY.entries, attempt_failed(**fields)))


SLOW = tuple(
    replace(record, seconds=30.0) if record.worker == "w1" else record for record in RECORDS
)
LOCAL = FolderFacts("environment", Path("/env"), kind="xfs")
DOUBTFUL = replace(LOCATED, warnings=("m: step1 lies out of order",))
MISSING = {"missing": ("org/m@step1",)}

# by check: the wrong facts, and a part of the remedy; a failure comes first where there is one
FAILURES = [
    ("slurm", wrong("slurm", problem="The command 'sbatch' is not on PATH"), "module load slurm"),
    ("partition", wrong("slurm", partitions={"gpu": False}), "cluster.partition=NAME"),
    ("job-limit", wrong("slurm", max_jobs=4), "cluster.workers=4"),
    ("task-layout", profile(directives=["--gres=gpu:l40s:4"]), "gpus_per_job: 4"),
    ("allocation-layout", variables(SLURM_NTASKS="1"), "--ntasks-per-node=4 --gpus-per-task=1"),
    ("rehearsal", wrong("slurm", refused=Refusal("no", "ask for less")), "ask for less"),
    ("interface", profile(interface="ib1"), "cluster.interface=ib0"),
    ("nccl-interface", variables(NCCL_SOCKET_IFNAME="eth7"), "unset NCCL_SOCKET_IFNAME"),
    ("gpu-driver", wrong("here", gpu_driver="470.82"), "newer driver"),
    ("folders", folder("logs", problem="read-only"), "cluster.logs"),
    ("disk-room", folder("run", free=10**6), "free some"),
    ("hub-cache", wrong("models", **MISSING, offline=True), "hf download org/m --revision step1"),
    ("checkpoints", wrong("models", problems=("Model 'm': no folder 'x'",)), "correct 'models:'"),
    ("failed-units", lost("error"), "daskmetrics runs logs"),
]
WARNINGS = [
    ("cpus", profile(threads=9), "cluster.threads=8"),
    ("open-files", wrong("here", files=256), "ulimit -n"),
    ("infiniband", variables(NCCL_IB_DISABLE="1"), "unset NCCL_IB_DISABLE"),
    ("threads", profile(kind="local", workers=8), "--workers 4"),
    ("gpu-memory", wrong("here", gpu_used=(0.8,)), "nvidia-smi"),
    ("shared-folders", folder("run", kind="xfs"), "shared file system"),
    ("failed-attempts", attempted(fault="memory"), "batch_tokens"),
    ("slow-node", wrong("history", records=SLOW), "--exclude=n1"),
    (
        "waiting",
        wrong("history", entries=(*HISTORY.entries[:-1], RunFinished("k", 7000.0))),
        "loading",
    ),
]
#: other facts of which the same checks warn or fail
ALSO = [
    ("interface", profile(interface="lo"), "cluster.interface=ib0"),
    ("task-layout", profile(directives=["--ntasks-per-node=4"]), "drop --ntasks"),
    ("disk-room", folder("run", free_files=12), "free some"),
    ("shared-folders", replace(SOUND, environment=LOCAL), "doctor PROFILE --worker"),
    (
        "hub-cache",
        wrong("models", **MISSING, hub=FolderFacts("hub", Path("/hub"), "read-only")),
        "HF_HOME",
    ),
    ("hub-cache", wrong("models", **MISSING), "on the login node"),
    ("failed-units", lost("oom"), "cluster.memory; then: daskmetrics runs retry runs/x"),
    ("failed-units", lost("timeout"), "unit_minutes"),
    ("failed-attempts", attempted(fault="death"), "job's log"),
    ("checkpoints", wrong("models", located=(DOUBTFUL,)), "hold the weights"),
    ("infiniband", wrong("here", infiniband={"mlx5_0:1": "DOWN, 10 Gb/sec"}), "ibstat"),
    ("infiniband", wrong("here", verbs=False), "container"),
    ("infiniband", wrong("here", locked=65536), "ulimit -l unlimited"),
]


@pytest.mark.parametrize(("name", "facts", "word"), FAILURES + WARNINGS + ALSO)
def test_a_wrong_fact_is_reported_with_its_remedy(name, facts, word):
    finding = CHECKS[name](facts)
    assert word in finding.remedy
    severities = {"failure"} if (name, facts, word) in FAILURES else {"warning", "failure"}
    assert finding.severity in severities


def test_a_sound_site_passes_every_check():
    findings = examine(SOUND)
    assert [name for name, finding in findings.items() if finding is None] == ["threads"]
    assert {finding.severity for finding in findings.values() if finding} == {"ok"}


def test_every_check_fails_or_warns_here():
    assert {name for name, *_ in FAILURES + WARNINGS} == set(CHECKS)


def test_the_ports_of_infiniband_are_read(tmp_path):
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    assert infiniband_ports(tmp_path) == HERE.infiniband


def test_a_run_with_failures_taken_back_has_no_failed_record(tmp_path):
    folder = RunFolder(tmp_path)
    failed = Record("a", "a", "demo", "oom")
    with Journal(folder.journal, folder.lock) as journal:
        for entry in (started(), failed, RunFinished("k", 1.0), UnitsRetried(["a"])):
            journal.append(entry)
    assert journal_of(folder).records == ()
