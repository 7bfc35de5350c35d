"""The certificates of a cluster: made for it alone, and valid on machines whose clocks differ."""

from __future__ import annotations

import fcntl
import secrets
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import dask
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Security

from daskmetrics.core.errors import ConfigError

# whatever the clocks of its machines show: the key is gone when the cluster ends
VALID = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
PREFIX = ".tls-"  # of the folders of keys


def cluster_security() -> Security:
    """A new key and its certificate, in memory; as `Security.temporary`, whose certificates begin
    at this moment.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dask-internal")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(VALID[0])
        .not_valid_after(VALID[1])
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM).decode()
    files = {}
    for role in ("client", "scheduler", "worker"):
        files[f"tls_{role}_key"] = private
        files[f"tls_{role}_cert"] = public
    return Security(require_encryption=True, tls_ca_file=public, **files)


INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
"""Variable from which a process of Dask takes its settings."""


def inherited(security: Security) -> Mapping[str, str]:
    """The variable by which a process of Dask gets the settings in force, with the certificates of
    workers and clients.
    """
    settings = {}
    for role in ("worker", "client"):
        files = security.get_tls_config_for_role(role)
        if files["cert"]:
            settings["distributed.comm.tls.ca-file"] = files["ca_file"]
            settings[f"distributed.comm.tls.{role}.cert"] = files["cert"]
            settings[f"distributed.comm.tls.{role}.key"] = files["key"]
    with dask.config.set({**settings, "distributed.comm.require-encryption": bool(settings)}):
        return {INHERITED: str(dask.config.serialize(dask.config.global_config))}


class KeyFolder:
    """The key and certificate of workers as files, private to the user; removed with the cluster.

    Folders that killed drivers have left in the same place are removed first: the lock of a driver
    ends with it.
    """

    def __init__(self, parent: Path, security: Security) -> None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ConfigError(
                f"Every user of this machine can replace files in '{parent}', where the workers' "
                "keys are written. Choose another folder for cluster.logs, or make it private: "
                f"chmod 700 '{parent}'"
            )
        for lock in parent.glob(f"{PREFIX}*/lock"):
            # it is in use, or this file system has no locks
            with suppress(OSError), lock.open("wb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent)
        self.path = parent / f"{PREFIX}{secrets.token_hex(8)}"
        self.path.mkdir(mode=0o700)
        self._lock = (self.path / "lock").open("wb")
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.files: dict[str, str] = {}
        texts = security.get_tls_config_for_role("worker")
        for name in ("ca_file", "cert", "key"):
            path = self.path / f"{name}.pem"
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(texts[name])
            self.files[name.replace("_", "-")] = str(path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
