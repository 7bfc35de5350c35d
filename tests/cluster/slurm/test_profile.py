from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from daskmetrics import config
from daskmetrics.cluster.slurm.partitions import choose, profile_text
from daskmetrics.cluster.slurm.script import pools, script
from daskmetrics.core.errors import ConfigError
from tests.cluster.slurm.test_partitions import read


def proposed(version: str, *without: str) -> tuple[str, config.Cluster]:
    site = [each for name, each in read(version).items() if name not in without]
    text = profile_text(*choose(site), "ib0")
    return text, config.cluster(yaml.safe_load(text))


def test_a_partition_with_gpus_that_is_open_to_all_accounts_is_chosen():
    text, profile = proposed("23.11")
    assert (profile.partition, profile.gpu_type, profile.gpus_per_job) == ("gpu", "a100", 1)
    assert profile.account is None and "# account: ..." in text
    assert "available: a100, a100_1g.5gb, l40s" in text
    assert "--gres=gpu:a100:1" in script(pools(profile)[0])


def test_a_worker_gets_its_share_of_a_node_up_to_a_limit():
    _, profile = proposed("23.11")
    assert (profile.threads, profile.memory) == (8, "64GiB")  # of 64 CPUs and 500 GiB for four
    _, profile = proposed("20.02")
    assert (profile.threads, profile.memory) == (8, "28GiB")  # of 16 CPUs and 62.5 GiB for two
    assert profile.walltime == "04:00:00"


def test_what_sinfo_prints_is_listed_in_comments():
    listing = "PARTITION TIMELIMIT\ncpu* 7-00:00:00\n"
    text = profile_text(*choose(tuple(read("22.05").values())), "ib0", listing)
    assert "#   PARTITION TIMELIMIT\n#   cpu* 7-00:00:00\n" in text


def test_where_only_some_accounts_may_one_is_named():
    text, profile = proposed("23.11", "gpu")
    assert (profile.partition, profile.account) == ("lab", "smith")
    assert "allowed: smith, jones" in text


def test_without_gpus_workers_request_none():
    _, profile = proposed("23.11", "gpu", "lab", "old")
    assert (profile.partition, profile.gpus_per_job, profile.gpu_type) == ("cpu", 0, None)
    assert "--gres" not in script(pools(profile)[0])


def test_a_site_without_a_usable_partition_is_refused():
    down = tuple(replace(each, up=False) for each in read("22.05").values())
    with pytest.raises(ConfigError, match=r"No partition is up.*Partitions: gpu"):
        choose(down)


def test_what_the_user_has_set_for_jobqueue_is_used_and_named():
    site = tuple(read("23.11").values())
    configured = {
        "partition": "lab",
        "account": "smith",
        "interface": "ib9",
        "prologue": ["module load cuda"],
    }
    text = profile_text(*choose(site, "lab"), "ib0", jobqueue=configured)
    assert text.count("# from jobqueue.yaml") == 4
    profile = config.cluster(yaml.safe_load(text))
    assert (profile.partition, profile.account, profile.interface, profile.prologue) == (
        "lab",
        "smith",
        "ib9",
        ("module load cuda",),
    )
    assert choose(site, "nowhere") == choose(site)
