from __future__ import annotations

import fcntl
from datetime import UTC, datetime

import pytest
from cryptography import x509

from daskmetrics.cluster._certificates import PREFIX, KeyFolder, cluster_security
from daskmetrics.core.errors import ConfigError


def test_a_certificate_is_valid_whatever_a_clock_shows():
    certificate = x509.load_pem_x509_certificate(cluster_security().tls_ca_file.encode())
    assert certificate.not_valid_before_utc == datetime(1970, 1, 1, tzinfo=UTC)
    assert certificate.not_valid_after_utc.year == 9999


def test_keys_of_a_killed_driver_are_removed_and_used_ones_kept(tmp_path):
    left, used = (tmp_path / f"{PREFIX}{name}" for name in ("left", "used"))
    for folder in (left, used):
        folder.mkdir()
        (folder / "key.pem").touch()
    (left / "lock").touch()
    with (used / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = KeyFolder(tmp_path, cluster_security())
    assert set(tmp_path.iterdir()) == {used, keys.path}
    assert "PRIVATE KEY" in (keys.path / "key.pem").read_text()
    keys.remove()
    assert set(tmp_path.iterdir()) == {used}


def test_a_folder_that_everybody_can_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="Other users of this machine can replace files"):
        KeyFolder(tmp_path, cluster_security())
    tmp_path.chmod(0o1777)  # as /tmp
    KeyFolder(tmp_path, cluster_security()).remove()
