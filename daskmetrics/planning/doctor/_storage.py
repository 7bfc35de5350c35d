"""Checks of folders and of the model hub's cache."""

from __future__ import annotations

from collections.abc import Callable

from daskmetrics.planning.doctor._facts import Facts, Folder
from daskmetrics.planning.doctor._finding import Check, Finding, failure, good, warning
from daskmetrics.planning.doctor._machine import LOCAL

SLOW = 5e6
"""Bytes per second; with less, a run waits for its journal."""

LEAST = 1e9
FEW_FILES = 10_000
WRITE = {
    "run": "choose another one: --folder, on a file system with room that is yours",
    "cache": "export DASKMETRICS_CACHE=FOLDER, one that you can write to",
    "logs": "--set cluster.logs=FOLDER, one that you can write to and that nodes share",
    "scratch": "--set cluster.scratch=FOLDER, one that exists on the nodes and is yours",
}


def writable(what: str) -> Check:
    """A check that a folder can be written."""

    def check(facts: Facts) -> Finding | None:
        folder = _folder(facts, what)
        if folder is None:
            return None
        if folder.problem:
            return failure(f"{what} folder {folder.path}: {folder.problem}", WRITE[what])
        return good(f"{what} folder {folder.path} can be written")

    check.__doc__ = f"The {what} folder can be written."
    return check


def _folder(facts: Facts, what: str) -> Folder | None:
    return next((folder for folder in facts.folders if folder.what == what), None)


def room(facts: Facts) -> Finding | None:
    """There is room for what the run writes."""
    return _least(facts, lambda folder: folder.free, facts.needed + LEAST, lambda n: f"{n / 1e9:.1f} GB free")


def files(facts: Facts) -> Finding | None:
    """There is room for further files, each chunk being one."""
    return _least(facts, lambda folder: folder.free_files, FEW_FILES, lambda n: f"{n:,.0f} files can be made")


def _least(facts: Facts, of: Callable[[Folder], float], wanted: float, said: Callable[[float], str]) -> Finding | None:
    folders = [folder for folder in facts.folders if not folder.problem]
    if not folders:
        return None
    worst = min(folders, key=of)
    if of(worst) < wanted:
        text = f"{worst.what} folder {worst.path}: {said(of(worst))}, wanted {said(wanted)}"
        return failure(text, f"free some, or {WRITE[worst.what]}")
    return good(f"{said(of(worst))} at least")


def quota(facts: Facts) -> Finding | None:
    """The user's quota is not used up."""
    if facts.quota is None:
        return None
    over = [line for line in facts.quota.splitlines() if "*" in line]
    if over:
        return failure(f"over quota: {over[0].strip()}", "free some space; see: quota -s")
    return good("within quota")


def shared(facts: Facts) -> Finding | None:
    """Nodes share the folders that they have to see."""
    if facts.slurm is None:
        return None
    own = [f for f in facts.folders if f.what in ("run", "logs", "cache") and f.kind in LOCAL]
    if own:
        said = "; ".join(f"{folder.what} folder {folder.path} ({folder.kind})" for folder in own)
        return warning(f"on this machine's own disk: {said}", "if nodes do not see them, choose a shared file system")
    return good("run, logs and cache lie on a network file system")


def speed(facts: Facts) -> Finding | None:
    """Writes that wait for the disk are quick enough for a journal."""
    folder = _folder(facts, "run")
    if folder is None or folder.speed is None:
        return None
    if folder.speed < SLOW:
        said = f"{folder.path}: {folder.speed / 1e6:.1f} MB/s with a wait for the disk"
        return warning(said, "a run of short units is slow here: another file system, or larger batches")
    return good(f"{folder.speed / 1e6:,.0f} MB/s with a wait for the disk ({folder.kind})")


def hub_cache(facts: Facts) -> Finding | None:
    """Models that are wanted are in the hub's cache, or may be fetched."""
    hub = facts.hub
    if hub is None or not hub.wanted:
        return None
    if hub.missing and hub.offline:
        said = f"HF_HUB_OFFLINE is set, and not in {hub.home}: {_some(hub.missing)}"
        return failure(said, f"where there is a network: hf download {hub.missing[0].replace('@', ' --revision ')}")
    if hub.missing and facts.profile.kind != "local":
        said = f"not in {hub.home}: {_some(hub.missing)}; nodes often have no network"
        return warning(said, f"on the login node: hf download {hub.missing[0].replace('@', ' --revision ')}")
    if hub.missing:
        return good(f"would be fetched: {_some(hub.missing)}")
    return good(f"all models are in {hub.home}")


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def hub_home(facts: Facts) -> Finding | None:
    """The hub's cache can be written, or nothing has to be."""
    hub = facts.hub
    if hub is None or not hub.wanted:
        return None
    if hub.problem and hub.missing:
        return failure(f"{hub.home}: {hub.problem}", "export HF_HOME=FOLDER, one that you can write to and nodes share")
    return good(f"{hub.home}" + (" (read only)" if hub.problem else ""))


def hub_switches(facts: Facts) -> Finding | None:
    """The switches that keep libraries from the network agree with each other."""
    own = facts.here.variables
    on = {
        name: own.get(name, "") not in ("", "0")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    }
    if any(on.values()) and not on["HF_HUB_OFFLINE"]:
        names = ", ".join(name for name, value in on.items() if value)
        return warning(f"{names} is set and HF_HUB_OFFLINE is not: the hub is still asked", "export HF_HUB_OFFLINE=1")
    return good("offline" if any(on.values()) else "online")
