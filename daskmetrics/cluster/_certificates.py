"""The certificates of a cluster: made for it alone, and valid on machines whose clocks differ."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import dask
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Security

from daskmetrics.cluster._dask_config import TEMPORARY
from daskmetrics.core.files import OwnFolder, atomic_write

# whatever the clocks of its machines show: the key is gone when the cluster ends
VALID = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
PREFIX = ".tls-"  # of the folders of keys


def cluster_security() -> Security:
    """A new key and its certificate, in memory.

    As `Security.temporary`, whose certificates begin at this moment.
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
    """The variable by which a process of Dask gets the settings in force.

    They have the certificates of workers and clients.
    """
    settings = {}
    for role in ("worker", "client"):
        files = security.get_tls_config_for_role(role)
        if files["cert"]:
            settings["distributed.comm.tls.ca-file"] = files["ca_file"]
            settings[f"distributed.comm.tls.{role}.cert"] = files["cert"]
            settings[f"distributed.comm.tls.{role}.key"] = files["key"]
    with dask.config.set({**settings, "distributed.comm.require-encryption": bool(settings)}):
        config = dict(dask.config.global_config)
        config.pop(TEMPORARY, None)  # each machine has its own
        return {INHERITED: str(dask.config.serialize(config))}


class KeyFolder:
    """The key and certificate of workers as files, private to the user.

    Removed with the cluster.
    """

    def __init__(self, parent: Path, security: Security) -> None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = OwnFolder(parent, PREFIX)
        self.path = self._folder.path
        self.files: dict[str, str] = {}
        texts = security.get_tls_config_for_role("worker")
        for name in ("ca_file", "cert", "key"):
            path = atomic_write(self.path / f"{name}.pem", texts[name])
            self.files[name.replace("_", "-")] = str(path)

    def remove(self) -> None:
        self._folder.remove()
