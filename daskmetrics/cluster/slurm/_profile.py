"""A profile for a Slurm that was looked at: which partition, how much of a node, and why, as commented YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from daskmetrics.cluster.slurm._partitions import Nodes, Partition, Site
from daskmetrics.core.errors import ConfigError

HOUR = 3600.0
WALLTIME = 4 * HOUR  # long enough to be worth a wait, short enough to be backfilled
CPUS = 8  # of one worker at most: nothing here makes use of more beside a GPU
MEMORY = 64  # GiB of one worker at most
SHARE = 0.9  # of a node's memory, since the system needs some
WORKERS = 4


def choose(site: Site) -> tuple[Partition, Nodes]:
    """The partition to work in, and the kind of node: with GPUs where there are any, the default one where it does.

    Raises
    ------
    ConfigError
        If no partition is up, or none has nodes.
    """
    open_ = [each for each in site.partitions if each.up and any(nodes.is_usable for nodes in each.nodes)]
    if not open_:
        names = ", ".join(each.name for each in site.partitions) or "none"
        raise ConfigError(f"No partition is up and has nodes that take work. Partitions: {names}. See: sinfo")
    best = max(open_, key=lambda each: (bool(each.gpus), not each.accounts, each.default, each.gpus.total()))
    usable = [nodes for nodes in best.nodes if nodes.is_usable]
    return best, max(usable, key=lambda nodes: (sum(whole(nodes.gpus).values()) * nodes.count, nodes.count))


def whole(gpus: Mapping[str, int]) -> Mapping[str, int]:
    """Without slices of GPUs (MIG), which are too small for most models, unless there is nothing else.

    Examples
    --------
    >>> whole({"a100": 2, "a100_1g.5gb": 14})
    {'a100': 2}
    """
    return {name: n for name, n in gpus.items() if not re.search(r"\dg\.\d+gb", name)} or gpus


def profile_text(site: Site, interface: str | None) -> str:
    """The YAML of a profile for the site, with what else there is as comments.

    Parameters
    ----------
    site : Site
    interface : str or None
        By which the nodes are reached from here.

    Raises
    ------
    ConfigError
        As `choose`.
    """
    partition, nodes = choose(site)
    return "\n".join([*_header(site), *_body(partition, nodes, interface), ""])


def _header(site: Site) -> list[str]:
    lines = [f"# Written by `daskmetrics cluster init` from what sinfo and scontrol of Slurm {site.version} say."]
    lines += ["# Try it with: daskmetrics cluster test FILE", "#", "# Partitions:"]
    for each in site.partitions:
        limit = "no time limit" if each.longest is None else f"up to {clock(each.longest)}"
        only = f", only for accounts {','.join(each.accounts)}" if each.accounts else ""
        lines.append(f"#   {each.name}{'*' if each.default else ''}: {limit}{'' if each.up else ', not up'}{only}")
        lines += [f"#     {_said(nodes)}" for nodes in each.nodes]
    return [*lines, ""]


def _said(nodes: Nodes) -> str:
    own = ", ".join(f"{n} x {name or 'GPU'}" for name, n in nodes.gpus.items()) or "no GPU"
    features = f"; features {','.join(nodes.features)}" if nodes.features else ""
    return f"{nodes.count} nodes of {nodes.cpus} CPUs, {nodes.memory / 1024:.0f} GiB, {own}; {nodes.state}{features}"


def _body(partition: Partition, nodes: Nodes, interface: str | None) -> list[str]:
    gpus = whole(nodes.gpus)
    each = max(1, sum(gpus.values()))  # workers that share a node
    kind = max(gpus, key=lambda name: gpus[name], default="")
    memory = min(MEMORY, int(nodes.memory * SHARE / each / 1024))
    others = sorted({name for name in partition.gpus if name} - {kind})
    lines = ["kind: slurm", f"workers: {WORKERS}", f"partition: {partition.name}", *_account(partition)]
    if nodes.gpus:
        lines += ["gpus_per_job: 1"]
        lines += [f"gpu_type: {kind}{_comment(others, 'also there: ')}"] if kind else []
    else:
        lines += ["gpus_per_job: 0  # no partition has any"]
    lines += [f"threads: {min(CPUS, max(1, nodes.cpus // each))}"]
    lines += [f"memory: {memory}GiB"] if memory else []
    lines += [f'walltime: "{clock(min(WALLTIME, partition.longest or WALLTIME))}"']
    told = "by which this machine reaches the nodes; theirs must have the same name"
    return [*lines, f"interface: {interface}  # {told}" if interface else "# interface: ib0"]


def _account(partition: Partition) -> list[str]:
    if partition.accounts:
        others = _comment(partition.accounts[1:], "also allowed: ")
        return [f"account: {partition.accounts[0]}{others}"]
    return ["# account: NAME  # if jobs without one are refused; 'sacctmgr show associations user=$USER' lists yours"]


def _comment(names: Iterable[str], before: str) -> str:
    text = ", ".join(names)
    return f"  # {before}{text}" if text else ""


def clock(seconds: float) -> str:
    """A time as Slurm writes it.

    Examples
    --------
    >>> clock(14400), clock(129600)
    ('04:00:00', '1-12:00:00')
    """
    days, rest = divmod(int(seconds), 86400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text
