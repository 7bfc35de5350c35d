"""What helps where ranks wait for others, or fail by what they were given."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from daskmetrics.core.machine import missing_interfaces
from daskmetrics.core.text import listed
from daskmetrics.training.ddp.ranks import Program

# what Python, torch, CUDA, the kernel and Slurm say
_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|MemoryError|out of memory|can't allocate memory|_ALLOC_FAILED|oom.kill", re.I
)
# what gloo and NCCL say
_NO_INTERFACE = re.compile(r"Unable to find address for|no socket interface found", re.I)


def late_text(program: Program, ranks: int, missing: Sequence[str]) -> str:
    """Which ranks are not in the process group when the first step is late, and what to do.

    >>> from pathlib import Path
    >>> program = Program("mine", ("train.py",), Path("mine"), 2, least=2)
    >>> print(late_text(program, 2, ["rank 1 (node b, GPU 0, worker w1, interface ib0)"]))
    mine has reported no step for 60 s. In the process group: 1 of 2 ranks. Missing: rank 1 (node b, GPU 0, worker w1, interface ib0). A missing rank has not called init_process_group, or cannot reach rank 0: set cluster.interface to a network that the nodes share. What the ranks print: mine/logs
    """
    cause = "Steps are read from bars, or from daskmetrics.progress(step)."
    if missing:
        cause = (
            f"Missing: {', '.join(missing)}. A missing rank has not called init_process_group, or"
            " cannot reach rank 0: set cluster.interface to a network that the nodes share."
        )
    return (
        f"{program.name} has reported no step for {program.timeout:.0f} s. In the process group:"
        f" {ranks - len(missing)} of {ranks} ranks. {cause}"
        f" What the ranks print: {program.folder / 'logs'}"
    )


def remedy(
    text: str,
    program: Program,
    variables: Mapping[str, str],
    interfaces: Collection[str],
) -> str:
    """What helps against an error that would occur again; empty if that is not known.

    ``text`` is what is known of the error; ``interfaces`` are those of the rank's machine.

    >>> from pathlib import Path
    >>> words = ("train.py", "--eval-batch=8", "--batch-size", "32", "--grad_accum=2")
    >>> program = Program("mine", words, Path("mine"), 2, least=2)
    >>> remedy("torch.OutOfMemoryError: CUDA out of memory.", program, {}, ())
    'Halve the batch of a rank (now --batch-size 32) and double the steps of gradient accumulation (now --grad_accum 2), which leaves the batch of a step as it is; or turn on activation checkpointing'
    >>> remedy("Unable to find address for: ib7", program, {"GLOO_SOCKET_IFNAME": "ib7"}, ("eth0", "lo"))
    'GLOO_SOCKET_IFNAME=ib7, but this machine has eth0 and lo. Unset it, or set cluster.interface to one of these'
    """
    if _OUT_OF_MEMORY.search(text):
        return (
            f"Halve the batch of a rank{_now(program, 'batch')} and double the steps of gradient"
            f" accumulation{_now(program, 'accum')}, which leaves the batch of a step as it is; or"
            f" turn on activation checkpointing{_now(program, 'checkpointing')}"
        )
    for setting in missing_interfaces(variables, interfaces):
        if _NO_INTERFACE.search(text):
            return (
                f"{setting}, but this machine has {listed(list(interfaces))}. Unset it, or set"
                " cluster.interface to one of these"
            )
    return ""


def _now(program: Program, part: str) -> str:
    argument = program.argument(part)
    return f" (now {' '.join(argument)})" if argument else ""
