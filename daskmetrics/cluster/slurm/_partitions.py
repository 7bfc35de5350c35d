"""What a Slurm offers, as `sinfo` and `scontrol` tell it: partitions, their limits, their nodes and GPUs.

Only what both have printed in the same form since Slurm 20 is read: rows of fields that we name ourselves, and
``Key=Value`` pairs of which unknown ones are passed over.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from daskmetrics.cluster.slurm._commands import slurm
from daskmetrics.core._times import parse_walltime

ROWS = "%P|%D|%c|%m|%G|%T|%f|%N"
"""Fields asked of ``sinfo --exact``: partition, nodes, CPUs, MiB, GRES, state, features, names."""
USABLE = ("idle", "mixed", "allocated", "completing", "planned", "reserved", "powering_up", "powered_down")


@dataclass(frozen=True)
class Nodes:
    """Equal nodes of a partition, in the same state.

    Attributes
    ----------
    count : int
    cpus, memory : int
        Of one node, memory in MiB.
    gpus : mapping of str to int
        Of one node, by type; the type is empty where the site names none.
    state : str
        As sinfo has it, without the signs that follow it.
    names : str
        As a host list, such as ``gpu[0-3]``.
    """

    count: int
    cpus: int
    memory: int
    gpus: Mapping[str, int]
    state: str
    features: tuple[str, ...] = ()
    names: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether jobs run there, now or when it is their turn."""
        return self.state in USABLE


@dataclass(frozen=True)
class Partition:
    """A partition with its limits and nodes.

    Attributes
    ----------
    name : str
    default : bool
    up : bool
    longest : float or None
        Seconds that a job may take; None without limit.
    accounts : tuple of str
        The only ones that may use it; empty for all.
    qos : tuple of str
        Likewise.
    nodes : tuple of Nodes
    """

    name: str
    default: bool = False
    up: bool = True
    longest: float | None = None
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    nodes: tuple[Nodes, ...] = ()

    @property
    def gpus(self) -> Counter[str]:
        """GPUs of all usable nodes, by type."""
        total: Counter[str] = Counter()
        for each in self.nodes:
            if each.is_usable:
                total.update({name: n * each.count for name, n in each.gpus.items()})
        return total


@dataclass(frozen=True)
class Site:
    """A Slurm: its version and its partitions."""

    version: str
    partitions: tuple[Partition, ...]


def read_site() -> Site:
    """The Slurm of this machine.

    Raises
    ------
    ConfigError
        If there is none.
    SlurmError
        If it does not answer.
    """
    version = slurm("sinfo", "--version").split()[-1]
    shown = slurm("scontrol", "--oneliner", "show", "partition")
    return Site(version, partitions(shown, slurm("sinfo", "--noheader", "--exact", f"--format={ROWS}")))


def partitions(shown: str, rows: str) -> tuple[Partition, ...]:
    """Partitions from what ``scontrol -o show partition`` and ``sinfo -o`` with `ROWS` printed."""
    nodes: dict[str, list[Nodes]] = {}
    for name, each in _node_rows(rows):
        nodes.setdefault(name, []).append(each)
    return tuple(
        Partition(
            name=pairs["PartitionName"],
            default=pairs.get("Default") == "YES",
            up=pairs.get("State", "UP") == "UP",
            longest=limit(pairs.get("MaxTime", "UNLIMITED")),
            accounts=_only(pairs.get("AllowAccounts", "ALL")),
            qos=_only(pairs.get("AllowQos", "ALL")),
            nodes=tuple(nodes.get(pairs["PartitionName"], ())),
        )
        for pairs in map(pairs_of, shown.splitlines())
        if "PartitionName" in pairs
    )


def _node_rows(rows: str) -> Iterator[tuple[str, Nodes]]:
    for row in rows.splitlines():
        if not row.strip():
            continue
        name, count, cpus, memory, gres, state, features, names = (part.strip() for part in row.split("|"))
        yield (
            name.rstrip("*"),
            Nodes(
                count=int(count),
                cpus=_number(cpus),
                memory=_number(memory),
                gpus=gpus(gres),
                state=re.sub(r"[^a-z_].*", "", state.lower()),  # '*' not responding, '~' asleep, '-' planned, ...
                features=_only(features),
                names=names,
            ),
        )


def pairs_of(line: str) -> dict[str, str]:
    """The ``Key=Value`` pairs of a line of scontrol; a value may itself hold equal signs.

    Examples
    --------
    >>> pairs_of("PartitionName=gpu MaxTime=1-00:00:00 TRES=cpu=16,node=2")["TRES"]
    'cpu=16,node=2'
    """
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def gpus(gres: str) -> dict[str, int]:
    """GPUs by type, from a node's generic resources.

    Examples
    --------
    >>> gpus("gpu:a100:4(S:0-1),gpu:a100_1g.5gb:7,shard:8"), gpus("gpu:2"), gpus("(null)")
    ({'a100': 4, 'a100_1g.5gb': 7}, {'': 2}, {})
    """
    found: Counter[str] = Counter()
    for kind, *about in (entry.split(":") for entry in re.sub(r"\((?!null)[^)]*\)", "", gres).split(",")):
        count = re.match(r"\d+", about[-1]) if about else None
        if kind.removeprefix("gres/") == "gpu" and count:
            name = next((word for word in about[:-1] if word not in ("(null)", "no_consume")), "")
            found[name] += int(count[0])
    return dict(found)


def limit(time: str) -> float | None:
    """A limit of Slurm's in seconds; None for no limit.

    Examples
    --------
    >>> limit("1-12:00:00"), limit("UNLIMITED")
    (129600.0, None)
    """
    return float(parse_walltime(time)) if time[:1].isdigit() else None  # UNLIMITED, INFINITE, NONE, n/a


def _number(text: str) -> int:
    return int(text.rstrip("+"))  # '24+': nodes of this row have at least so many


def _only(names: str) -> tuple[str, ...]:
    return () if names in ("ALL", "(null)", "") else tuple(names.split(","))


def interface_to(nodes: str) -> str | None:
    """The network interface of this machine by which nodes are reached, or None if that is not to be found out.

    Parameters
    ----------
    nodes : str
        A host list, such as ``gpu[0-3]``; the first of them is asked for.
    """
    import psutil

    first = next(iter(slurm("scontrol", "show", "hostnames", nodes).split()), "")
    address = pairs_of(slurm("scontrol", "--oneliner", "show", "node", first)).get("NodeAddr", first)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing: it only asks the system for a route
            own = probe.getsockname()[0]
    except OSError:
        return None
    return _named(own, {name: [a.address for a in found] for name, found in psutil.net_if_addrs().items()})


def _named(address: str, interfaces: Mapping[str, Iterable[str]]) -> str | None:
    return next((name for name, addresses in interfaces.items() if address in addresses), None)
