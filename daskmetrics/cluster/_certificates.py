"""The certificates of a cluster: made for it alone, and valid on machines whose clocks differ."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dask
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Security

from daskmetrics.core.errors import ConfigError

BACKDATED = timedelta(days=1)  # a machine whose clock is behind by less can join
VALID = timedelta(days=366)
PREFIX = ".tls-"  # of the folders of keys


def new_certificate(now: datetime) -> Security:
    """A new key and its certificate, in memory; as `Security.temporary`, whose certificates begin at this moment."""
    key = ec.generate_private_key(ec.SECP256R1())
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private = key.private_bytes(encoding, form, serialization.NoEncryption()).decode()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dask-internal")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(encoding).decode()
    roles = ("client", "scheduler", "worker")
    parts = {f"tls_{role}_{part}": text for role in roles for part, text in (("key", private), ("cert", public))}
    return Security(require_encryption=True, tls_ca_file=public, **parts)


def cluster_security() -> Security:
    """The certificates of a new cluster."""
    return new_certificate(datetime.now(UTC))


INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"  # variable from which a process of Dask takes its settings


def inherited_settings(security: Security) -> str:
    """The settings of Dask in force, with the certificates of workers, for `INHERITED`."""
    files = security.get_tls_config_for_role("worker")
    keys = {"ca_file": "ca-file", "cert": "worker.cert", "key": "worker.key"}
    tls = {f"distributed.comm.tls.{key}": files[name] for name, key in keys.items() if files.get(name)}
    with dask.config.set({**tls, "distributed.comm.require-encryption": bool(tls)}):
        return str(dask.config.serialize(dask.config.global_config))


class KeyFolder:
    """The key and certificate of workers as files, private to the user; removed with the cluster.

    Folders that killed drivers have left in the same place are removed first: the lock of a driver ends with it.
    """

    def __init__(self, parent: Path, security: Security) -> None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (mode := parent.stat().st_mode) & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ConfigError(
                f"Every user of this machine can replace files in '{parent}', where the workers' keys are written. "
                f"Choose another folder for cluster.logs, or make it private: chmod 700 '{parent}'"
            )
        for lock in parent.glob(f"{PREFIX}*/lock"):
            with suppress(OSError), lock.open("wb") as file:  # it is in use, or this file system has no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent)
        self.path = parent / f"{PREFIX}{secrets.token_hex(8)}"
        self.path.mkdir(mode=0o700)
        self._lock = (self.path / "lock").open("wb")
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files = security.get_tls_config_for_role("worker")
        self.files = {name.replace("_", "-"): self._write(name, files[name]) for name in ("ca_file", "cert", "key")}

    def _write(self, name: str, text: str) -> str:
        path = self.path / f"{name}.pem"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        return str(path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
