"""Memory nodes of a machine: which one is near a GPU, which CPUs are near it, and allocating memory there."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}  # numbers of the system call, which the C library does not wrap
PREFERRED = 1  # MPOL_PREFERRED: other nodes are used when this one is full; as ``numactl --preferred``


def node_of_gpu(gpu: str, root: Path = Path("/")) -> int | None:
    """The memory node of a GPU, given by its number or UUID; None if the machine has one node only, or states none."""
    if len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) < 2:
        return None
    for file in (root / "proc/driver/nvidia/gpus").glob("*/information"):
        about = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        if gpu in (about.get("Device Minor", "").strip(), about.get("GPU UUID", "").strip()):
            node = root / "sys/bus/pci/devices" / file.parent.name / "numa_node"
            number = int(node.read_text()) if node.is_file() else -1
            return number if number >= 0 else None
    return None


def cpus_of_node(node: int, root: Path = Path("/")) -> set[str]:
    """The CPUs of a memory node."""
    spans = (root / f"sys/devices/system/node/node{node}/cpulist").read_text().strip().split(",")
    ends = [(int(first), int(last or first)) for first, _, last in (span.partition("-") for span in spans if span)]
    return {str(cpu) for first, last in ends for cpu in range(first, last + 1)}


def prefer_memory(node: int) -> None:
    """Let this thread, and those that it starts, allocate memory on a node while there is room; OSError if refused."""
    number, mask = SET_MEMPOLICY.get(platform.machine()), ctypes.c_ulong(1 << node)
    libc = ctypes.CDLL(None, use_errno=True)
    if number is None or libc.syscall(number, PREFERRED, ctypes.byref(mask), 8 * ctypes.sizeof(mask) + 1):
        reason = os.strerror(ctypes.get_errno()) if number else f"not known for {platform.machine()}"
        raise OSError(f"The memory of node {node} cannot be preferred: {reason}.")
