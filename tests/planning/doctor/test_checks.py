"""Every check on made-up facts: it passes on a sound site, and reports a remedy where one fact is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from daskmetrics.cluster.slurm._partitions import Nodes, Partition, Site
from daskmetrics.config import Cluster, Model
from daskmetrics.config._checkpoints import LocatedSuite
from daskmetrics.core._events import RunFinished
from daskmetrics.core._machine import infiniband_ports
from daskmetrics.core.names import Suite
from daskmetrics.execution import Record
from daskmetrics.planning.doctor import CHECKS, Facts, Severity, examine
from daskmetrics.planning.doctor._facts import (
    FolderFacts,
    HubFacts,
    MachineFacts,
    RunHistory,
    SlurmFacts,
    SuiteFacts,
)
from daskmetrics.planning.doctor._history import pace
from tests.events import attempt_failed, joined, started

VERSIONS = {"python": "3.12.3", "daskmetrics": "0.1.0", "torch": "2.6.0+cu126"}
PROFILE = {
    "kind": "slurm",
    "workers": 8,
    "partition": "gpu",
    "gpu_type": "l40s",
    "interface": "ib0",
    "account": "abc",
    "memory": "16GiB",
    "threads": 4,
    "scratch": "/scratch/me",
}
HERE = MachineFacts(
    "login1",
    VERSIONS,
    {"lo": ("127.0.0.1",), "ib0": ("10.0.0.1",), "usb0": ()},
    cpus=16,
    files=4096,
    variables={"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
)
WORKER = replace(
    HERE,
    host="gpu1",
    gpus=("NVIDIA L40S",),
    gpu_driver="550.54",
    gpu_used=(0.01,),
    infiniband={"mlx5_0:1": "ACTIVE, 200 Gb/sec (4X HDR), InfiniBand"},
    variables={"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0"},
)
NODES = Nodes(4, 32, 256 * 1024, {"l40s": 4}, "idle", names="gpu[0-3]")
PARTITION = Partition("gpu", True, True, 86400.0, ("abc",), (), (NODES,))
SLURM = SlurmFacts((), None, Site("23.11", (PARTITION,)), None, ("abc",), 100, {"gpu0": "10.0.0.9"}, "ib0")
FOLDERS = tuple(
    FolderFacts(what, Path("/data") / what, None, 10**12, 10**7, "nfs4", 5e7)
    for what in ("run", "cache", "logs", "scratch")
)
MODEL = Model(name="m", source="org/m")
LOCATED = LocatedSuite(Suite("m", ("step1", "step2"), (0, 1), 1), (), 8)
WORKERS = tuple(joined(f"w{i}", f"n{i}", **VERSIONS) for i in (0, 1))
RECORDS = tuple(Record(f"k{i}", f"m@step{i}", "measure", "ok", {}, seconds=10.0, worker=f"w{i % 2}") for i in range(12))
HISTORY = RunHistory(
    Path("runs/x"),
    (started(), *WORKERS, RunFinished("k", 70.0)),
    RECORDS,
    True,
    None,
)
SOUND = Facts(
    profile=Cluster(**PROFILE),
    here=HERE,
    slurm=SLURM,
    worker=WORKER,
    folders=FOLDERS,
    quota="Disk quotas for user me: none",
    prefix=Path("/data/env"),
    prefix_kind="nfs4",
    hub=HubFacts(Path("/data/hub"), (MODEL,)),
    suites=SuiteFacts((LOCATED,)),
    history=HISTORY,
)


def profile(**changes):
    return replace(SOUND, profile=Cluster(**{**PROFILE, **changes}))


def test_what_workers_answer_about_folders_counts_more_than_the_file_system():
    for unseen, severity in (({}, Severity.GOOD), ({"w1": "/runs"}, Severity.FAILURE)):
        finding = CHECKS["shared-folders"](replace(folder("run", kind="xfs"), unseen=unseen))
        assert finding.severity is severity, finding
    assert finding.message == "worker w1 does not see /runs"


def slurm(**changes):
    return replace(SOUND, slurm=replace(SLURM, **changes))


def partition(**changes):
    return slurm(site=Site("23.11", (replace(PARTITION, **changes),)))


def here(**changes):
    return replace(SOUND, here=replace(HERE, **changes))


def worker(**changes):
    return replace(SOUND, worker=replace(WORKER, **changes))


def folder(what, **changes):
    return replace(SOUND, folders=tuple(replace(f, **changes) if f.what == what else f for f in FOLDERS))


def suites(**changes):
    return replace(SOUND, suites=SuiteFacts(**changes))


def history(**changes):
    return replace(SOUND, history=replace(HISTORY, **changes))


def lost(status):
    return history(records=(*RECORDS, Record("x", "m@step99", "measure", status, reason="it broke")))


SLOW = tuple(replace(record, seconds=30.0) if record.worker == "w1" else record for record in RECORDS)
LONG = (replace(RECORDS[0], seconds=500.0), *RECORDS[1:])
HUB = HubFacts(Path("/data/hub"), (MODEL,), ("org/m@step1",), offline=True)

# the wrong facts, whether they are a failure, and a part of the remedy
BROKEN = {
    "slurm-commands": (slurm(missing=("sbatch",)), True, "module load slurm"),
    "slurm-answers": (slurm(problem="sinfo did not answer within 60 s"), True, "scontrol ping"),
    "partition": (profile(partition="gpuu"), True, "cluster.partition=gpu"),
    "nodes": (partition(nodes=(replace(NODES, state="drained"),)), True, "sinfo -R"),
    "account": (profile(account="other"), True, "cluster.account=abc"),
    "job-limit": (slurm(max_jobs=4), True, "cluster.max_jobs=4"),
    "gres": (profile(gpu_type="h100"), True, "cluster.gpu_type=l40s"),
    "walltime": (profile(walltime="2-00:00:00"), True, "1-00:00:00"),
    "memory": (profile(memory="900GiB"), True, "cluster.memory"),
    "cpus": (profile(threads=99), True, "cluster.threads=32"),
    "task-layout": (profile(directives=["--gres=gpu:l40s:4"]), True, "gpus_per_job: 4"),
    "allocation-layout": (
        here(variables={**HERE.variables, "SLURM_NTASKS": "1"}),
        True,
        "--ntasks-per-node=4 --gpus-per-task=1",
    ),
    "memory-directives": (profile(directives=["--mem-per-gpu=40G"]), True, "keep only"),
    "rehearsal": (slurm(refusal="Requested time limit is invalid"), True, "--dry-run"),
    "interface": (profile(interface="ib1"), True, "cluster.interface=ib0"),
    "interface-leads": (profile(interface="lo"), True, "cluster.interface=ib0"),
    "interface-on-worker": (worker(interfaces={"lo": ("127.0.0.1",)}), True, "both machines"),
    "node-names": (slurm(addresses={"gpu0": ""}), False, "support"),
    "clock": (worker(clock_problem="its clock is 60 s behind this machine's"), False, "synchronise"),
    "ports": (here(port_problem="no port can be opened"), True, "cluster.interface"),
    "open-files": (here(files=256), False, "ulimit -n"),
    "nccl-interface": (worker(variables={"NCCL_SOCKET_IFNAME": "eth7"}), True, "unset NCCL_SOCKET_IFNAME"),
    "infiniband": (worker(variables={"NCCL_IB_DISABLE": "1"}), False, "unset NCCL_IB_DISABLE"),
    "python": (here(versions={**VERSIONS, "torch": "none"}), True, "pip install"),
    "same-versions": (worker(versions={**VERSIONS, "torch": "2.5.0"}), True, "same packages"),
    "environment": (replace(SOUND, prefix_kind="ext4", worker=None), False, "shared file system"),
    "threads": (worker(variables={"OMP_NUM_THREADS": "1"}), False, "prologue"),
    "gpu": (worker(variables={}), True, "gpus_per_job=1"),
    "gpu-driver": (worker(gpu_driver="470.82"), True, "newer driver"),
    "gpu-memory": (worker(gpu_used=(0.8,)), False, "nvidia-smi"),
    "run-folder": (folder("run", problem="read-only"), True, "--folder"),
    "cache-folder": (folder("cache", problem="read-only"), True, "DASKMETRICS_CACHE"),
    "logs-folder": (folder("logs", problem="read-only"), True, "cluster.logs"),
    "scratch-folder": (folder("scratch", problem="read-only"), True, "cluster.scratch"),
    "disk-room": (folder("run", free=10**6), True, "free some"),
    "disk-files": (folder("run", free_files=12), True, "free some"),
    "quota": (replace(SOUND, quota="/home 5000* 4000 5000"), True, "quota -s"),
    "shared-folders": (folder("run", kind="xfs"), False, "shared file system"),
    "disk-speed": (folder("run", speed=1e5), False, "another file system"),
    "hub-cache": (replace(SOUND, hub=HUB), True, "hf download org/m --revision step1"),
    "hub-home": (replace(SOUND, hub=replace(HUB, problem="read-only")), True, "HF_HOME"),
    "checkpoints": (suites(problems=("Model 'm': no folder 'x'",)), True, "correct 'models:'"),
    "equal-weights": (suites(located=(replace(LOCATED, aliases={"step2": ("main",)}),)), False, "measured once"),
    "weights": (
        suites(located=(replace(LOCATED, warnings=("m: step1 lies out of order",)),)),
        False,
        "hold the weights",
    ),
    "hub-switches": (here(variables={"TRANSFORMERS_OFFLINE": "1"}), False, "HF_HUB_OFFLINE=1"),
    "driver": (history(finished=False), True, "resumes"),
    "failed-units": (lost("error"), True, "daskmetrics logs"),
    "out-of-memory": (lost("oom"), True, "--only oom"),
    "timeouts": (lost("timeout"), True, "unit_minutes"),
    "deaths": (lost("quarantined"), True, "--only quarantined"),
    "slow-node": (history(records=SLOW), False, "--exclude=n1"),
    "uneven-units": (history(records=LONG), False, "fewer workers"),
    "waiting": (history(entries=(*HISTORY.entries[:-1], RunFinished("k", 7000.0))), False, "loading"),
}


def test_a_sound_site_passes_every_check():
    findings = examine(SOUND)
    assert {
        name: each.message for name, each in findings.items() if each is None or each.severity is not Severity.GOOD
    } == {}


def test_every_check_fails_here_once():
    assert set(BROKEN) == set(CHECKS) and len(CHECKS) >= 25
    assert all(check.__doc__ for check in CHECKS.values())


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_fact_is_reported_with_its_remedy(name):
    facts, is_failure, word = BROKEN[name]
    finding = CHECKS[name](facts)
    assert finding is not None
    assert finding.severity is (Severity.FAILURE if is_failure else Severity.WARNING)
    assert word in finding.remedy, finding.remedy


def test_a_machine_alone_needs_few_checks():
    alone = Facts(profile=Cluster(), here=HERE)
    applied = {name for name, finding in examine(alone).items() if finding is not None}
    assert "python" in applied and not applied & {"partition", "gres", "rehearsal", "driver", "scratch-folder"}


@pytest.mark.parametrize(
    ("changes", "problem", "remedy"),
    [
        ({"variables": {"NCCL_NET": "Socket"}}, "NCCL_NET=Socket", "unset NCCL_NET"),
        ({"variables": {"NCCL_IB_HCA": "mlx4"}}, "names none of mlx5_0:1", "unset NCCL_IB_HCA"),
        ({"infiniband": {"mlx5_0:1": "DOWN, 10 Gb/sec, InfiniBand"}}, "no port is active (mlx5_0:1 DOWN", "ibstat"),
        ({"verbs": False}, "/dev/infiniband is not visible", "container"),
        ({"locked": 65536}, "may lock only 0.1 MB", "ulimit -l unlimited"),
    ],
)
def test_the_reasons_for_which_nccl_falls_back_to_sockets_are_named(changes, problem, remedy):
    finding = CHECKS["infiniband"](worker(**changes))
    assert problem in finding.message and remedy in finding.remedy


def test_the_variables_of_the_ranks_count_too():
    facts = replace(SOUND, environment={"NCCL_IB_DISABLE": "1"})
    assert "NCCL_IB_DISABLE is set" in CHECKS["infiniband"](facts).message


def test_the_ports_of_infiniband_are_read(tmp_path):
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    for name, text in {"state": "4: ACTIVE", "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}.items():
        (port / name).write_text(text + "\n")
    assert infiniband_ports(tmp_path) == {"mlx5_0:1": "ACTIVE, 200 Gb/sec (4X HDR), InfiniBand"}


def test_two_tasks_without_srun_are_a_failure():
    finding = CHECKS["task-layout"](profile(directives=["--ntasks-per-node=4"]))
    assert finding.severity is Severity.FAILURE and "drop --ntasks" in finding.remedy


def test_the_pace_of_a_node_is_relative_to_the_others():
    assert pace(replace(HISTORY, records=SLOW)) == pytest.approx({"n0": 1 / 3, "n1": 3.0})
    assert pace(replace(HISTORY, records=SLOW[:4])) == {}


def test_faults_of_units_that_succeeded_later_are_warnings():
    attempt = attempt_failed(fault="memory")
    finding = CHECKS["out-of-memory"](history(entries=(*HISTORY.entries, attempt)))
    assert finding.severity is Severity.WARNING
