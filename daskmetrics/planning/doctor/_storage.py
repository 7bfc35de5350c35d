"""Checks of folders, of the model hub's cache and of the checkpoints in both."""

from __future__ import annotations

from collections.abc import Callable

from daskmetrics.core._text import equal_names, shortened
from daskmetrics.core.names import Checkpoint
from daskmetrics.planning.doctor._facts import Check, Facts, Finding, FolderFacts, failure, good, warning
from daskmetrics.planning.doctor._machine import LOCAL

SLOW = 5e6  # bytes per second below which a run waits for its journal
LEAST_SPACE = 1e9
LEAST_FILES = 10_000
REMEDIES = {
    "run": "choose another one: --folder, on a file system with free space that you can write to",
    "cache": "export DASKMETRICS_CACHE=FOLDER, one that you can write to",
    "logs": "--set cluster.logs=FOLDER, one that you can write to and that nodes share",
    "scratch": "--set cluster.scratch=FOLDER, one that exists on the nodes and that you can write to",
}


def writable(what: str) -> Check:
    """A check that a folder is writable."""

    def check(facts: Facts) -> Finding | None:
        """The folder is writable."""
        folder = _folder(facts, what)
        if folder is None:
            return None
        if folder.problem:
            return failure(f"{what} folder {folder.path}: {folder.problem}", REMEDIES[what])
        return good(f"{what} folder {folder.path} is writable")

    return check


def _folder(facts: Facts, what: str) -> FolderFacts | None:
    return next((folder for folder in facts.folders if folder.what == what), None)


def room(facts: Facts) -> Finding | None:
    """There is free space for what the run writes."""
    return _least(facts, lambda folder: folder.free, LEAST_SPACE, lambda n: f"{n / 1e9:.1f} GB")


def files(facts: Facts) -> Finding | None:
    """Enough files can be created; each chunk is one."""
    return _least(facts, lambda folder: folder.free_files, LEAST_FILES, lambda n: f"{n:,.0f} files")


def _least(
    facts: Facts, free: Callable[[FolderFacts], float], needed: float, text: Callable[[float], str]
) -> Finding | None:
    if not (folders := [folder for folder in facts.folders if not folder.problem]):
        return None
    worst = min(folders, key=free)
    if free(worst) < needed:
        message = f"{worst.what} folder {worst.path}: room for {text(free(worst))}, needs {text(needed)}"
        return failure(message, f"free some, or {REMEDIES[worst.what]}")
    return good(f"room for at least {text(free(worst))}")


def quota(facts: Facts) -> Finding | None:
    """The user's quota is not exceeded."""
    if facts.quota is None:
        return None
    over = [line for line in facts.quota.splitlines() if "*" in line]
    return failure(f"over quota: {over[0].strip()}", "free some space; see: quota -s") if over else good("within quota")


def shared(facts: Facts) -> Finding | None:
    """Workers share the folders that they use: by their own answers if there are any, or by the file system."""
    if facts.unseen:
        lacking = "; ".join(f"worker {name} does not see {path}" for name, path in facts.unseen.items())
        return failure(lacking, "put the run and its models on a file system that all machines share")
    if facts.unseen is not None:
        return good("the workers see the folders of the run and of its models")
    if facts.slurm is None:
        return None
    if local := [f for f in facts.folders if f.what in ("run", "logs", "cache") and f.kind in LOCAL]:
        names = "; ".join(f"{folder.what} folder {folder.path} ({folder.kind})" for folder in local)
        return warning(f"on a local disk of this machine: {names}", "if nodes do not see it, use a shared file system")
    return good("the folders of run, logs and cache are on a network file system")


def speed(facts: Facts) -> Finding | None:
    """Synchronous writes are fast enough for a journal."""
    folder = _folder(facts, "run")
    if folder is None or folder.speed is None:
        return None
    if folder.speed < SLOW:
        message = f"{folder.path}: {folder.speed / 1e6:.1f} MB/s in synchronous writes"
        return warning(message, "a run of short units is slow here: use another file system, or larger batches")
    return good(f"{folder.speed / 1e6:,.0f} MB/s in synchronous writes ({folder.kind})")


def hub_cache(facts: Facts) -> Finding | None:
    """Required models are in the hub's cache, or can be downloaded."""
    hub = facts.hub
    if hub is None or not hub.required:
        return None
    if not hub.missing:
        limited = ", ".join(f"{model.name} through {model.disk} of disk" for model in hub.required if model.disk)
        return good(f"the run downloads {limited}" if limited else f"all models are in {hub.home}")
    names = shortened(hub.missing, most=3)
    download = f"hf download {hub.missing[0].replace('@', ' --revision ')}"
    if hub.offline:
        message = f"HF_HUB_OFFLINE is set, and {hub.home} does not contain {names}"
        return failure(message, f"on a machine with a network: {download}")
    if facts.profile.kind != "local":
        message = f"{hub.home} does not contain {names}; nodes often have no network"
        return warning(message, f"on the login node: {download}")
    return good(f"to be downloaded: {names}")


def hub_home(facts: Facts) -> Finding | None:
    """The hub's cache is writable, or nothing has to be downloaded."""
    hub = facts.hub
    if hub is None or not hub.required:
        return None
    if hub.problem and hub.missing:
        return failure(f"{hub.home}: {hub.problem}", "export HF_HOME=FOLDER, one that you can write to and nodes share")
    return good(f"{hub.home}" + (" (read only)" if hub.problem else ""))


def hub_switches(facts: Facts) -> Finding | None:
    """The offline switches of the libraries agree with each other."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    switched_on = [name for name in names if facts.here.variables.get(name, "") not in ("", "0")]
    if switched_on and "HF_HUB_OFFLINE" not in switched_on:
        message = f"{', '.join(switched_on)} is set but HF_HUB_OFFLINE is not: libraries still contact the hub"
        return warning(message, "export HF_HUB_OFFLINE=1")
    return good("offline" if switched_on else "online")


def checkpoints(facts: Facts) -> Finding | None:
    """The checkpoints of all models can be found."""
    if facts.suites is None:
        return None
    if facts.suites.problems:
        return failure(facts.suites.problems[0], "correct 'models:' in the configuration, or provide the files")
    count = sum(len(each.suite.revisions) for each in facts.suites.located)
    offered = [each.offered for each in facts.suites.located if each.offered]
    return good("; ".join([f"{count:,} checkpoints of different content", *offered]))


def equal_weights(facts: Facts) -> Finding | None:
    """No two revisions serve the same weights."""
    if facts.suites is None:
        return None
    names = [
        equal_names(str(Checkpoint(each.suite.model, kept)), others)
        for each in facts.suites.located
        for kept, others in each.aliases.items()
    ]
    if names:
        return warning(f"equal weights: {'; '.join(names)}", "they are measured once; ask the authors of the suite")
    return good("all revisions differ")


def weights(facts: Facts) -> Finding | None:
    """The weights of each step lie between those of the steps before and after it."""
    if facts.suites is None:
        return None
    if texts := [text for each in facts.suites.located for text in each.warnings]:
        return warning("; ".join(texts), "check that these revisions hold the weights of their steps")
    return good("no step is out of order")
