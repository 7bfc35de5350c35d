"""Software, GPUs and workers: this process, the machine that it runs on, and the workers of a Dask
client.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any

from daskmetrics.core.errors import ClusterLostError, describe

NETWORK = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # variables of ranks


def close_input() -> None:
    """Let this process and its children read nothing from standard input.

    A shell's loop may feed it.
    """
    file = os.open(os.devnull, os.O_RDONLY)
    os.dup2(file, 0)
    if file:
        os.close(file)


# what a call of Dask raises once the thread of its client has ended
THREAD_ENDED = (RuntimeError, UnboundLocalError)
ALIVE = 1.0  # seconds between two looks whether its threads run, while it is waited for


def is_whole(client: Any) -> bool:
    """Whether the threads run in which a `distributed.Client` works and reads large messages.

    Dask waits for ever for one that has ended.
    """
    from distributed.utils import _offload_executor

    readers = _offload_executor._threads
    return client.loop.asyncio_loop.is_running() and all(map(Thread.is_alive, readers))


def ask(client: Any, call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
    """What a call in the thread of a `distributed.Client` returns.

    It is a ClusterLostError if the scheduler does not answer, or a thread of the client ends
    meanwhile, for which ``Client.sync`` would wait for ever.
    """
    import asyncio
    from concurrent.futures import CancelledError, wait

    async def answer() -> Any:
        return await call(*args, **kwargs)

    loop = client.loop.asyncio_loop
    asked = None
    try:
        while is_whole(client):
            asked = asked or asyncio.run_coroutine_threadsafe(answer(), loop)
            if wait([asked], ALIVE).done:
                return asked.result()
        reason = "a thread of the client has ended"
    except (OSError, RuntimeError, CancelledError) as error:
        reason = describe(error)
    raise ClusterLostError(f"The scheduler does not answer ({reason}).")


def workers(client: Any) -> Mapping[str, Any]:
    """The workers that the scheduler knows now, by address; a ClusterLostError as of `ask`.

    The scheduler is asked directly, because the cached ``scheduler_info`` of the client can miss
    some.
    """
    return dict(ask(client, client.scheduler.identity, n_workers=-1)["workers"])


@contextmanager
def thread_of(client: Any) -> Iterator[None]:
    """Raise a ClusterLostError for what fails once the client's thread has ended."""
    try:
        yield
    except THREAD_ENDED as error:
        if client.loop.asyncio_loop.is_running():
            raise
        raise ClusterLostError("The scheduler was lost. What was recorded is kept.") from error


async def replace_worker(client: Any, address: str) -> None:
    """Kill the process of a worker, even a stopped one; its nanny starts another.

    A worker that is gone, or has no nanny, stays as it is.
    """
    with suppress(OSError, KeyError):
        await client.run(
            lambda dask_worker: os.kill(dask_worker.process.pid, signal.SIGKILL),
            workers=[address],
            nanny=True,
            on_error="ignore",
            asynchronous=True,
        )


def user_name() -> str:
    """The name of this user, or the number if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def environment(*packages: str) -> dict[str, str]:
    """Versions of Python and of packages, and the kind of machine."""
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **{name: version(name) for name in packages},
    }


def interfaces() -> dict[str, tuple[str, ...]]:
    """The IPv4 addresses of each network interface; none if it is down."""
    import psutil

    usable = {}
    for name, addresses in psutil.net_if_addrs().items():
        usable[name] = tuple(a.address for a in addresses if a.family == socket.AF_INET)
    return usable


def missing_interfaces(variables: Mapping[str, str], existing: Collection[str]) -> Iterator[str]:
    """The variables of NCCL and Gloo that name an interface which does not exist.

    >>> list(missing_interfaces({"NCCL_SOCKET_IFNAME": "eth", "GLOO_SOCKET_IFNAME": "eth"}, ["eth0"]))
    ['GLOO_SOCKET_IFNAME=eth']
    """
    for name in NETWORK:
        value = variables.get(name, "")
        if value.startswith("^"):  # names the interfaces to avoid
            continue
        is_prefix = name == "NCCL_SOCKET_IFNAME" and not value.startswith("=")
        for wanted in filter(None, value.removeprefix("=").split(",")):
            if not any(
                interface == wanted or (is_prefix and interface.startswith(wanted))
                for interface in existing
            ):
                yield f"{name}={value}"


def oom_kills(root: Path = Path("/")) -> int:
    """How many processes of this one's cgroup the kernel has killed for memory."""
    count = 0
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        file = root / f"sys/fs/cgroup/{path}/memory.events"
        if controllers == "memory":  # of the first version
            file = root / f"sys/fs/cgroup/memory/{path}/memory.oom_control"
        with suppress(OSError):
            count += sum(map(int, re.findall(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)))
    return count


def is_free(port: int) -> bool:
    """Whether no process of this machine listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable of this process within the block.

    Processes that it starts have it, too.
    """
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


VISIBLE = "CUDA_VISIBLE_DEVICES"


def driver_gpus(root: Path = Path("/")) -> dict[str, dict[str, str]]:
    """What NVIDIA's driver says of each GPU, by its bus address.

    Empty without a driver.
    """
    gpus = {}
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        pairs = re.findall(r"^([^:\n]+):[ \t]*(.*\S)", file.read_text(), re.MULTILINE)
        gpus[file.parent.name] = dict(pairs)
    return gpus


def gpu_models() -> list[str]:
    """Model names of the machine's GPUs, as NVIDIA's driver lists them."""
    return [gpu["Model"] for gpu in driver_gpus().values() if "Model" in gpu]


def visible_gpus() -> list[str]:
    """The GPUs of this process, as ``CUDA_VISIBLE_DEVICES`` names them.

    Without that variable these are all.
    """
    value = os.environ.get(VISIBLE)
    if value is not None:
        return split_gpus(value)
    devices = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
    count = sum(map(str.isdigit, devices)) or len(gpu_models())
    return [str(number) for number in range(count)]


def split_gpus(value: str) -> list[str]:
    """The entries of a value of ``CUDA_VISIBLE_DEVICES``.

    >>> split_gpus("0, MIG-a,"), split_gpus("")
    (['0', 'MIG-a'], [])
    """
    return [gpu.strip() for gpu in value.split(",") if gpu.strip()]


def infiniband_ports(root: Path = Path("/sys/class/infiniband")) -> dict[str, str]:
    """State, rate and link of each InfiniBand (or RoCE) port."""

    states = {}
    for port in sorted(root.glob("*/ports/*")):
        words = []
        for name in ("state", "rate", "link_layer"):
            with suppress(OSError):
                text = (port / name).read_text().strip()
                words.append(text.rpartition(": ")[2])
        states[f"{port.parents[1].name}:{port.name}"] = ", ".join(words)
    return states


def _resource_use() -> dict[str, float | None]:
    """CPU seconds and peak memory in bytes; of a GPU torch's reserve."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    torch = sys.modules.get("torch")  # do not import it for this
    gpu_memory = None
    if torch and torch.cuda.is_initialized():
        gpu_memory = int(torch.cuda.max_memory_reserved())
    return {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss * 1024,
        "cpus": len(os.sched_getaffinity(0)),
        "gpu_memory": gpu_memory,
    }


def usage(client: Any) -> dict[str, Any]:
    """What the workers have used so far, as far as they answer."""
    names = {address: str(worker["name"]) for address, worker in workers(client).items()}
    reports = ask(client, client.run, _resource_use, on_error="ignore", asynchronous=True)
    return {names[address]: report for address, report in reports.items() if address in names}
