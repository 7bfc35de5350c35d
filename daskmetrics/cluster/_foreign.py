"""Clusters that other programs and libraries make: a running scheduler, and any class of Dask's ecosystem."""

from __future__ import annotations

import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from distributed import Client, Security

from daskmetrics.config import TLS, Cluster, Factory
from daskmetrics.core.errors import ConfigError, unknown


def existing_client(profile: Cluster) -> AbstractContextManager[Client]:
    """A client of a running scheduler, given by its address or its scheduler file."""
    if not profile.address:
        raise ConfigError(
            "cluster.kind is 'existing': give cluster.address (tcp://..., tls://... or a scheduler file)."
        )
    is_file = "://" not in profile.address
    if is_file and not Path(profile.address).is_file():
        raise ConfigError(
            f"The scheduler file '{profile.address}' does not exist. Write one with: dask scheduler --scheduler-file F"
        )
    if profile.tls and not is_file and not profile.address.startswith("tls://"):
        raise ConfigError(f"cluster.tls is given, but cluster.address is '{profile.address}': write tls://HOST:PORT.")
    target = {"scheduler_file": profile.address} if is_file else {"address": profile.address}
    security = {"security": _security(profile.tls)} if profile.tls else {}
    try:
        client: AbstractContextManager[Client] = Client(
            **target, **security, set_as_default=False, timeout=min(30.0, profile.patience)
        )
    except (OSError, TypeError, RuntimeError) as error:  # Dask has a TypeError or a RuntimeError for missing TLS
        remedy = "" if profile.tls else " If it demands TLS, set cluster.tls (ca, cert and key)."
        raise ConfigError(f"No scheduler answers at '{profile.address}': {error}.{remedy}") from None
    return client


def _security(tls: TLS) -> Security:
    """What a client needs for TLS; ConfigError if a file is missing, or the files do not belong together."""
    for name, path in tls.model_dump().items():
        if not Path(path).expanduser().is_file():
            raise ConfigError(f"cluster.tls.{name}: the file '{path}' does not exist.")
    ca, cert, key = (str(Path(path).expanduser()) for path in (tls.ca, tls.cert, tls.key))
    try:
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(cert, key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"cluster.tls: '{tls.ca}', '{tls.cert}' and '{tls.key}' cannot be used ({error}). They are files in PEM "
            "format, and the key is the one of the certificate."
        ) from None
    return Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)


@contextmanager
def factory_client(profile: Cluster, about: Factory) -> Iterator[Client]:
    """A client of a cluster that a class of another library makes, with the workers of the profile."""
    make = factory(about)
    try:
        cluster = make(*about.args, **about.kwargs)
    except Exception as error:  # whatever the class raises
        given, reason = ", ".join(about.kwargs) or "none", " ".join(str(error).split())[:300]
        raise ConfigError(
            f"{about.class_} of {about.module} did not make a cluster ({type(error).__name__}: {reason}). See "
            f"cluster.factory; its kwargs are: {given}."
        ) from error
    with closing(cluster):
        if profile.fewest is not None:
            cluster.adapt(minimum=profile.fewest, maximum=profile.workers)
        elif getattr(cluster, "new_spec", True):  # without it the class fixes the workers, as the hosts of SSHCluster
            cluster.scale(profile.workers)
        with Client(cluster, set_as_default=False) as client:
            yield client


def factory(about: Factory) -> Callable[..., Any]:
    """The class or function that a profile names; ConfigError if there is none."""
    before = signal.getsignal(signal.SIGINT)
    try:
        module = import_module(about.module)
    except ImportError as error:
        name = about.module.partition(".")[0].replace("_", "-")
        raise ConfigError(
            f"cluster.factory.module: '{about.module}' cannot be imported ({error}). If it is not installed here: pip "
            f"install {name}"
        ) from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)  # dask-jobqueue replaces it by a sys.exit() for the whole process
    found = getattr(module, about.class_, None)
    if not callable(found):
        names = [name for name in dir(module) if not name.startswith("_") and callable(getattr(module, name))]
        raise unknown(f"class of {about.module}", about.class_, names)
    result: Callable[..., Any] = found
    return result
