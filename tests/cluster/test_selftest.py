from __future__ import annotations

import pytest

from daskmetrics.cluster._selftest import Verdict, checks, device
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.execution import _handshake as handshake


def tried(client, folder, require_same=handshake.require_same):
    profile = Cluster(logs=str(folder))
    return {each.name: each for each in checks(client, profile, handshake.question(), require_same)}


def test_a_worker_that_is_as_it_should_be(client, tmp_path):
    found = tried(client, tmp_path)
    assert list(found) == ["versions", "import", "device", "shared folder", "network there", "network back"]
    assert {each.verdict for each in found.values()} == {Verdict.OK}
    assert all(each.seconds > 0 for each in found.values())
    assert "torch" in found["versions"].told and "8 MiB" in found["network back"].told
    assert not list(tmp_path.iterdir())


def test_a_check_that_fails_does_not_hide_the_others(client, tmp_path):
    def refuse(worker, versions):
        raise ConfigError("Worker has torch 1.0, the driver has torch 2.0.")

    (tmp_path / "file").touch()
    found = tried(client, tmp_path / "file", refuse)
    assert found["versions"].verdict is Verdict.FAILED and "torch 1.0" in found["versions"].told
    assert found["shared folder"].verdict is Verdict.FAILED and "exists" in found["shared folder"].told
    assert found["network there"].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("visible", "devices", "driver", "verdict", "told"),
    [
        ("3", ["NVIDIA L40S"], True, Verdict.OK, "owns GPU 3: NVIDIA L40S"),
        ("0,1", ["A", "A"], True, Verdict.FAILED, "sees 2 GPUs"),
        ("0", [], True, Verdict.FAILED, "build of torch with CUDA"),
        ("0", [], False, Verdict.NOTE, "no driver"),
        (None, [], False, Verdict.FAILED, "its job has no GPU"),
    ],
    ids=["owned", "shared", "torch without CUDA", "no driver", "none"],
)
def test_what_to_think_of_gpus(visible, devices, driver, verdict, told):
    seen = {"visible": visible, "devices": devices, "driver": driver}
    found = device(seen, wanted=True)
    assert found[0] is verdict and told in found[1]
    assert device(seen, wanted=False)[0] is Verdict.OK
