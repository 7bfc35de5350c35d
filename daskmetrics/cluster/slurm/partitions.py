"""What a site offers, as `sinfo`, `scontrol` and `sacctmgr` print it: partitions, limits, nodes,
GPUs, accounts, own jobs that wait; and what a profile for it may say.

Only output whose form has not changed since Slurm 20.11 is parsed: rows of fields that we name
ourselves, and ``Key=Value`` pairs, of which unknown ones are ignored.
"""

from __future__ import annotations

import csv
import math
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from daskmetrics.cluster.slurm.commands import parse_pairs, seconds_left, slurm, time_of
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.machine import interfaces, user_name
from daskmetrics.core.serialization import readable
from daskmetrics.core.text import walltime_text

NODE_FIELDS = "Partition:|,NodeList:|,StateLong:|,CPUsState:|,Memory:|,Gres:|,GresUsed:|"
"""Format of ``sinfo -N -O``: one line for each node and partition."""
USABLE = ("idle", "mixed", "allocated", "completing", "planned", "reserved", "powering_up",
          "powered_down")  # fmt: skip

# of a proposed profile
WALLTIME = 4 * 3600.0  # long enough to be worth a wait, short enough to be backfilled
CPUS = 8  # of one worker at most: beside a GPU no more are used
MEMORY = 64  # GiB of one worker at most
SHARE = 0.9  # of a node's memory, since the system needs some
WORKERS = 4


@dataclass(frozen=True)
class Node:
    """A node of a partition."""

    name: str
    state: str  # as sinfo prints it, without the signs that follow it
    cpus: int
    idle: int  # of the CPUs
    memory: int  # in MiB
    gpus: Mapping[str, int]  # by type, which is empty where the site names none
    used: Mapping[str, int]  # of the GPUs

    def has(self, device: str) -> int:
        """How many GPUs of a type, or CPUs."""
        if device == "cpu":
            return self.cpus
        return self.gpus.get(device, 0)

    def free(self, device: str) -> int:
        """How many of these can take work now."""
        if self.state not in ("idle", "mixed"):
            return 0
        if device == "cpu":
            return self.idle
        return max(0, self.has(device) - self.used.get(device, 0))


@dataclass(frozen=True)
class WaitingJob:
    """A job of the user that waits in the queue."""

    id: str
    start: float  # as Slurm expects it, in seconds since 1970
    seconds: float  # of its time limit
    nodes: int
    devices: Mapping[str, int] = field(hash=False)  # of a node: CPUs, and GPUs by type


@dataclass(frozen=True)
class Partition:
    """A partition with its limits and nodes."""

    name: str
    default: bool = False
    up: bool = True
    longest: float | None = None  # time limit of a job in seconds; None without limit
    accounts: tuple[str, ...] = ()  # the only ones that may use it; empty for all
    nodes: tuple[Node, ...] = ()

    @property
    def usable_nodes(self) -> tuple[Node, ...]:
        """Where jobs run, now or later."""
        return tuple(node for node in self.nodes if node.state in USABLE)

    @property
    def gpus(self) -> Counter[str]:
        """GPUs of all usable nodes, by type."""
        total: Counter[str] = Counter()
        for node in self.usable_nodes:
            total.update(node.gpus)
        return total


def read_partitions() -> tuple[Partition, ...]:
    """The partitions of the Slurm of this machine."""
    printed = slurm("scontrol", "--oneliner", "show", "partition")
    return parse_partitions(printed, slurm("sinfo", "-h", "-N", "-O", NODE_FIELDS))


@readable("The site", "the output of scontrol and sinfo")
def parse_partitions(printed: str, rows: str) -> tuple[Partition, ...]:
    """Partitions from the output of ``scontrol -o show partition`` and of ``sinfo`` with
    `NODE_FIELDS`.
    """
    nodes: dict[str, list[Node]] = defaultdict(list)
    for row in rows.splitlines():
        if row.count("|") < 6:  # a remark of the site
            continue
        partition, name, state, cpus, memory, gres, used = map(str.strip, row.split("|")[:7])
        # without the signs that follow it: '*' not responding, '~' asleep, '-' planned
        state = re.sub(r"[^a-z_].*", "", state.lower())
        _, idle, _, all_cpus = map(int, cpus.split("/"))
        gpus = parse_gpus(gres)
        used_gpus = parse_gpus(used)
        node = Node(name, state, all_cpus, idle, int(memory), gpus, used_gpus)
        nodes[partition.rstrip("*")].append(node)
    partitions = []
    for pairs in map(parse_pairs, printed.splitlines()):
        if "PartitionName" not in pairs:
            continue
        name = pairs["PartitionName"]
        accounts = pairs.get("AllowAccounts", "ALL")
        partitions.append(
            Partition(
                name=name,
                default=pairs.get("Default") == "YES",
                up=pairs.get("State", "UP") == "UP",
                longest=seconds_left(pairs.get("MaxTime", "UNLIMITED")),
                accounts=() if accounts in ("ALL", "(null)") else tuple(accounts.split(",")),
                nodes=tuple(nodes[name]),
            )
        )
    return tuple(partitions)


def requested(profile: Cluster, partitions: Sequence[Partition]) -> Mapping[str, Partition | None]:
    """The partitions that a profile names, in its order, or else the default one.

    None for a name that the site does not have.
    """
    by_name = {partition.name: partition for partition in partitions}
    names = [partition.name for partition in partitions if partition.default][:1]
    if profile.partition:
        names = profile.partition.split(",")
    return {name: by_name.get(name) for name in names}


def parse_gpus(gres: str) -> dict[str, int]:
    """GPUs by type, from the generic resources of a node or a job.

    >>> parse_gpus("gpu:a100:4(S:0-1),gpu:a100_1g.5gb:7,shard:8"), parse_gpus("gpu:2"), parse_gpus("(null)")
    ({'a100': 4, 'a100_1g.5gb': 7}, {'': 2}, {})
    """
    counts: Counter[str] = Counter()
    for entry in re.sub(r"\((?!null)[^)]*\)", "", gres).split(","):  # without sockets and indices
        kind, *fields = entry.split(":")
        count = re.match(r"\d+", entry.rpartition(":")[2])
        if kind.removeprefix("gres/") == "gpu" and count:
            names = [word for word in fields[:-1] if word not in ("(null)", "no_consume")]
            counts["".join(names[:1])] += int(count[0])
    return dict(counts)


def own_queue(partition: str) -> list[WaitingJob]:
    """The user's jobs that wait on a partition; none where Slurm says nothing that can be read."""
    words = (f"--user={user_name()}", f"--partition={partition}", "--states=PENDING")
    try:
        printed = slurm("squeue", "-h", *words, "--format=%i|%S|%l|%D|%C|%b")
        return waiting_jobs(printed.splitlines())
    except DaskmetricsError:
        return []


@readable("The queue", "the output of squeue")
def waiting_jobs(lines: Iterable[str]) -> list[WaitingJob]:
    """The jobs in lines of ``squeue`` of which Slurm says when they start.

    >>> start = "2030-01-01T14:05:00|2:00:00|2|4|gres:gpu:l40s:4"
    >>> [job] = waiting_jobs([f"7|{start}", "8|N/A|9:00|1|1|N/A", f"9_[0-99]|{start}"])
    >>> job.id, job.seconds, job.nodes, job.devices
    ('7', 7200, 2, {'cpu': 2, 'l40s': 4})
    """
    jobs = []
    for line in lines:
        if line.count("|") != 5:  # a remark of the site
            continue
        job, start_text, limit, *counts, gres = line.strip().split("|")
        start = time_of(start_text)
        # otherwise it is held, depends on another one, or is many jobs
        if start and "[" not in job:
            # of a range, such as 2-4, the least
            nodes, cpus = (int(count.partition("-")[0]) for count in counts)
            devices = {"cpu": cpus // nodes, **parse_gpus(gres.removeprefix("gres:"))}
            seconds = seconds_left(limit) or math.inf
            jobs.append(WaitingJob(job, start.timestamp(), seconds, nodes, devices))
    return jobs


def interface_to(node: str) -> str | None:
    """The network interface of this machine that leads to a node.

    None if it cannot be determined.
    """
    pairs = parse_pairs(slurm("scontrol", "--oneliner", "show", "node", node))
    address = pairs.get("NodeAddr", node)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing: it only asks the system for a route
            local = probe.getsockname()[0]
    except OSError:
        return None
    return next((name for name, addresses in interfaces().items() if local in addresses), None)


def user_accounts() -> tuple[str, ...] | None:
    """The user's accounts, or None where the site has no accounting."""
    names = (row.get("Account") for row in _sacctmgr("associations", "account"))
    return tuple(dict.fromkeys(filter(None, names))) or None


def job_limit() -> int | None:
    """The smallest limit on the user's submitted jobs, of associations and their QOS.

    None if there is none.
    """
    numbers = [
        int(number)
        for _, limits in account_limits()
        for name, number in limits.items()
        if name.startswith("MaxSubmit") and number.isdecimal()
    ]
    return min(numbers, default=None)


def account_limits() -> Sequence[tuple[str, Mapping[str, str]]]:
    """The limits of the user's accounts, and of the QOS that these may use.

    By their names, each with what sets them; empty without accounting.
    """
    account = "account,partition,qos,maxjobs,maxsubmitjobs,maxwall,maxtres,grptres"
    qos = "name,maxjobsperuser,maxsubmitjobsperuser,maxwall,maxtres,maxtresperuser,grptres"
    limits: list[tuple[str, dict[str, str]]] = []
    usable_qos: set[str] = set()
    for row in _sacctmgr("associations", account):
        usable_qos |= set(row.pop("QOS", "").split(","))
        source = f"account {row.pop('Account', '')}"
        if partition := row.pop("Partition", ""):
            source += f" on {partition}"
        limits.append((source, row))
    for row in _sacctmgr("qos", qos):
        name = row.pop("Name", "")
        if name in usable_qos:
            limits.append((f"QOS {name}", row))
    return [(source, row) for source, row in limits if row]


def _sacctmgr(table: str, fields: str) -> Sequence[dict[str, str]]:
    """The rows of a table of ``sacctmgr``, without empty fields, of associations only the user's.

    None without accounting.
    """
    words = ["sacctmgr", "-P", "show", table, f"format={fields}"]
    if table == "associations":
        words.append(f"user={user_name()}")  # $USER is not set everywhere
    try:
        rows = csv.DictReader(slurm(*words).splitlines(), delimiter="|")
    except DaskmetricsError:
        return []
    return [{name: value for name, value in row.items() if value} for row in rows]


def choose(partitions: Sequence[Partition]) -> tuple[Partition, Node]:
    """The best partition and its best kind of node.

    With GPUs, open to all accounts, the default one, in this order.
    """
    usable = [partition for partition in partitions if partition.up and partition.usable_nodes]
    if not usable:
        names = ", ".join(partition.name for partition in partitions) or "none"
        raise ConfigError(
            f"No partition is up and has usable nodes. Partitions: {names}. See: sinfo"
        )

    def suitability(partition: Partition) -> tuple[bool, bool, bool, int]:
        gpus = partition.gpus.total()
        return gpus > 0, not partition.accounts, partition.default, gpus

    partition = max(usable, key=suitability)
    kinds: dict[object, list[Node]] = defaultdict(list)
    for node in partition.usable_nodes:
        kinds[node.cpus, node.memory, *node.gpus.items()].append(node)

    def size(alike: Sequence[Node]) -> tuple[int, int]:
        gpus_per_node = sum(whole_gpus(alike[0].gpus).values())
        return gpus_per_node * len(alike), len(alike)

    return partition, max(kinds.values(), key=size)[0]


def whole_gpus(gpus: Mapping[str, int]) -> Mapping[str, int]:
    """GPUs without MIG slices, unless there are only slices.

    Slices are too small for most models.

    >>> whole_gpus({"a100": 2, "a100_1g.5gb": 14})
    {'a100': 2}
    """
    undivided = {name: n for name, n in gpus.items() if not re.search(r"\dg\.\d+gb", name)}
    return undivided or gpus


def proposed_profile(partition: Partition, node: Node, interface: str | None, listing: str) -> str:
    """A profile as YAML with comments: a share of a node of the partition for each worker."""
    gpus = whole_gpus(node.gpus)
    workers_per_node = max(1, sum(gpus.values()))
    lines = [
        "# Written by `daskmetrics cluster init` from the output of Slurm.",
        "# Test it with: daskmetrics doctor FILE --worker",
        "#",
        *(f"#   {line}" for line in listing.splitlines()),
        "",
        "kind: slurm",
        f"workers: {WORKERS}",
        f"partition: {partition.name}",
    ]
    account = "# account: ...  # if Slurm requires one: sacctmgr show associations user=$USER"
    if partition.accounts:
        allowed = ", ".join(partition.accounts)
        account = f"account: {partition.accounts[0]}  # allowed: {allowed}"
    lines += [account, f"gpus_per_job: {min(1, len(gpus))}"]
    if gpu_type := max(gpus, key=gpus.__getitem__, default=""):
        available = ", ".join(dict.fromkeys([gpu_type, *sorted(filter(None, partition.gpus))]))
        lines.append(f"gpu_type: {gpu_type}  # available: {available}")
    lines.append(f"threads: {min(CPUS, max(1, node.cpus // workers_per_node))}")
    # 0 where Slurm does not say
    if memory := min(MEMORY, int(node.memory * SHARE / workers_per_node / 1024)):
        lines.append(f"memory: {memory}GiB")
    walltime = walltime_text(min(WALLTIME, partition.longest or WALLTIME))
    named = f"interface: {interface}" if interface else "# interface: ..."
    lines += [
        f'walltime: "{walltime}"',
        f"{named}  # to the nodes, whose interface must have the same name",
    ]
    return "\n".join(lines)
