from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from daskmetrics.cluster.slurm import _partitions as site
from daskmetrics.cluster.slurm._partitions import Partition, partitions
from daskmetrics.core.errors import ConfigError

SITES = Path(__file__).parent / "sites"


def read(version: str) -> dict[str, Partition]:
    shown, rows = ((SITES / f"{version}-{what}.txt").read_text() for what in ("partitions", "nodes"))
    return {each.name: each for each in partitions(shown, rows)}


def test_the_recorded_site():
    gpu = read("22.05")["gpu"]
    assert gpu.default and gpu.up and gpu.longest == 86400 and gpu.accounts == ()
    [nodes] = gpu.nodes
    assert (nodes.count, nodes.cpus, nodes.memory, nodes.gpus) == (2, 8, 65536, {"l40s": 2})
    assert nodes.is_usable and gpu.gpus == {"l40s": 4}


def test_a_mixed_site_of_a_later_version():
    found = read("23.11")
    assert [name for name, each in found.items() if each.default] == ["cpu"]
    assert [name for name, each in found.items() if not each.up] == ["old"]
    assert found["lab"].accounts == ("smith", "jones") and found["lab"].longest is None
    assert found["gpu"].qos == ("gpu", "gpu-long") and found["gpu"].accounts == ()
    assert [nodes.state for nodes in found["gpu"].nodes] == ["mixed", "drained", "idle", "powered_down"]
    assert [nodes.state for nodes in found["cpu"].nodes if not nodes.is_usable] == ["down"]
    # the drained node's are not counted; sleeping ones are, since Slurm wakes them
    assert found["gpu"].gpus == {"a100": 30, "a100_1g.5gb": 42, "l40s": 16}
    assert found["old"].nodes[0].gpus == {"k80": 4}
    assert found["gpu"].nodes[0].features == ("amd", "ib", "nvlink") and found["lab"].nodes[0].features == ()


def test_an_early_version_that_names_no_type():
    found = read("20.02")["all"]
    assert found.longest is None and found.gpus == {"": 8}
    assert (found.nodes[0].cpus, found.nodes[0].memory) == (16, 64000)


def test_where_there_is_no_slurm(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match="There is no 'sinfo' here"):
        site.read_site()
