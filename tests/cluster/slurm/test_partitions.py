"""Partitions as Slurm prints them, and the profile that is made from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from daskmetrics import config
from daskmetrics.cluster.slurm import refusals
from daskmetrics.cluster.slurm.commands import SlurmRefusal
from daskmetrics.cluster.slurm.partitions import (
    Partition,
    account_limits,
    choose,
    job_limit,
    parse_partitions,
    proposed_profile,
    user_accounts,
)
from daskmetrics.cluster.slurm.script import LaunchInfo, pools, script
from daskmetrics.core.errors import ConfigError

SITES = Path(__file__).parent / "sites"


def read(version: str) -> dict[str, Partition]:
    texts = ((SITES / f"{version}-{what}.txt").read_text() for what in ("partitions", "nodes"))
    return {partition.name: partition for partition in parse_partitions(*texts)}


def test_a_recorded_site_is_parsed():
    gpu = read("22.05")["gpu"]
    assert gpu.default and gpu.up and gpu.longest == 86400 and gpu.accounts == ()
    assert gpu.usable_nodes == gpu.nodes
    node, _ = gpu.nodes
    assert (node.name, node.cpus, node.memory, node.gpus) == ("gpu0", 8, 65536, {"l40s": 2})
    assert gpu.gpus == {"l40s": 4}


def test_a_mixed_site_of_a_later_version_is_parsed():
    partitions = read("23.11")
    assert [name for name, partition in partitions.items() if partition.default] == ["cpu"]
    assert [name for name, partition in partitions.items() if not partition.up] == ["old"]
    assert partitions["lab"].accounts == ("smith", "jones") and partitions["lab"].longest is None
    assert partitions["gpu"].accounts == ()
    states = dict.fromkeys(node.state for node in partitions["gpu"].nodes)
    assert list(states) == ["mixed", "drained", "idle", "powered_down"]
    usable = partitions["cpu"].usable_nodes
    assert {node.state for node in partitions["cpu"].nodes if node not in usable} == {"down"}
    # GPUs of the drained node are not counted; those of sleeping nodes are, since Slurm wakes them
    assert partitions["gpu"].gpus == {"a100": 30, "a100_1g.5gb": 42, "l40s": 16}
    assert partitions["old"].nodes[0].gpus == {"k80": 4}


def test_an_early_version_without_gpu_types_is_parsed():
    partition = read("20.02")["all"]
    assert partition.longest is None and partition.gpus == {"": 8}
    assert (partition.nodes[0].cpus, partition.nodes[0].memory) == (16, 64000)


@pytest.mark.parametrize(
    ("version", "without", "chosen", "comments"),
    [
        # open to all accounts; of 64 CPUs and 500 GiB for four GPUs a worker gets its share, up to
        # a limit
        (
            "23.11",
            (),
            ("gpu", None, "a100", 1, 8, "64GiB"),
            ("# account: ...", "available: a100, a100_1g.5gb, l40s"),
        ),
        ("23.11", ("gpu",), ("lab", "smith"), ("allowed: smith, jones",)),
        ("23.11", ("gpu", "lab", "old"), ("cpu", None, None, 0), ()),
        # of 16 CPUs and 62.5 GiB for two GPUs
        ("20.02", (), ("all", None, None, 1, 8, "28GiB", "04:00:00"), ()),
        ("22.05", (), ("gpu",), ("#   PARTITION TIMELIMIT\n#   cpu* 7-00:00:00\n",)),
    ],
    ids=["open", "some accounts", "no GPUs", "early", "listing"],
)
def test_a_profile_is_made_of_the_best_partition(version, without, chosen, comments):
    site = [partition for name, partition in read(version).items() if name not in without]
    listing = "PARTITION TIMELIMIT\ncpu* 7-00:00:00\n"
    text = proposed_profile(*choose(site), "ib0", listing)
    profile = config.cluster(yaml.safe_load(text))
    keys = ("partition", "account", "gpu_type", "gpus_per_job", "threads", "memory", "walltime")
    assert tuple(getattr(profile, key) for key in keys)[: len(chosen)] == chosen
    assert [comment for comment in comments if comment not in text] == []
    request = f"--gres=gpu:{profile.gpu_type}:1" if profile.gpu_type else "--gres=gpu:1"
    assert (request in script(pools(profile)[0])) == (profile.gpus_per_job > 0)


def test_a_site_without_a_usable_partition_is_refused():
    down = tuple(replace(partition, up=False) for partition in read("22.05").values())
    with pytest.raises(ConfigError, match=r"No partition is up.*Partitions: gpu"):
        choose(down)


def test_without_accounting_there_are_no_limits(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert account_limits() == []
    assert job_limit() is None and user_accounts() is None


def test_a_refusal_of_scoring_jobs_names_their_keys(monkeypatch):
    def rehearse(text):
        if "--partition=cpuu" in text:
            raise SlurmRefusal("invalid partition name specified")

    monkeypatch.setattr(refusals, "rehearse", rehearse)
    monkeypatch.setattr(refusals, "read_partitions", lambda: tuple(read("23.11").values()))
    scoring = {"workers": 1, "partition": "cpuu"}
    profile = config.Cluster(kind="slurm", partition="gpu", gpus_per_job=1, scoring=scoring)
    refused = refusals.refusal(profile, LaunchInfo())
    assert refused and refused.remedy.startswith("--set cluster.scoring.partition=cpu (up are: ")
