from __future__ import annotations

from pathlib import Path

from daskmetrics.cluster.slurm.partitions import Partition, parse_partitions

SITES = Path(__file__).parent / "sites"


def read(version: str) -> dict[str, Partition]:
    printed, rows = (
        (SITES / f"{version}-{what}.txt").read_text() for what in ("partitions", "nodes")
    )
    return {each.name: each for each in parse_partitions(printed, rows)}


def test_a_recorded_site_is_parsed():
    gpu = read("22.05")["gpu"]
    assert gpu.default and gpu.up and gpu.longest == 86400 and gpu.accounts == ()
    node, other = gpu.nodes
    assert (node.name, node.cpus, node.memory, node.gpus) == ("gpu0", 8, 65536, {"l40s": 2})
    assert node.is_usable and other.is_usable and gpu.gpus == {"l40s": 4}


def test_a_mixed_site_of_a_later_version_is_parsed():
    partitions = read("23.11")
    assert [name for name, each in partitions.items() if each.default] == ["cpu"]
    assert [name for name, each in partitions.items() if not each.up] == ["old"]
    assert partitions["lab"].accounts == ("smith", "jones") and partitions["lab"].longest is None
    assert partitions["gpu"].accounts == ()
    states = dict.fromkeys(node.state for node in partitions["gpu"].nodes)
    assert list(states) == ["mixed", "drained", "idle", "powered_down"]
    unusable = {node.state for node in partitions["cpu"].nodes if not node.is_usable}
    assert unusable == {"down"}
    # GPUs of the drained node are not counted; those of sleeping nodes are, since Slurm wakes them
    assert partitions["gpu"].gpus == {"a100": 30, "a100_1g.5gb": 42, "l40s": 16}
    assert partitions["old"].nodes[0].gpus == {"k80": 4}


def test_an_early_version_without_gpu_types_is_parsed():
    partition = read("20.02")["all"]
    assert partition.longest is None and partition.gpus == {"": 8}
    assert (partition.nodes[0].cpus, partition.nodes[0].memory) == (16, 64000)
