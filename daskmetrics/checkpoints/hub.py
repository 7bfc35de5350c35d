"""What the hub says of a model's repository, kept in the cache folder for machines without a
network; and downloads that are tried again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from daskmetrics.checkpoints.content import keep, recall
from daskmetrics.config.schema import Model
from daskmetrics.core.errors import NO_ROOM, ConfigError, DaskmetricsError, DataError, did_you_mean
from daskmetrics.core.files import cache_folder
from daskmetrics.core.names import content_key, select_revisions, training_order
from daskmetrics.core.retry import Fault, GiveUp, RetryPolicy
from daskmetrics.core.text import plural, shortened

REQUESTS = 8  # at once
TRIES = RetryPolicy(exceptions=4, delay=1.0, longest_delay=60.0)  # beside those of the client
_PASSING = (408, 425, 429)  # the server is busy
_ALLOW = (
    "Accept its terms on the hub's page, and log in with 'hf auth login' or set HF_TOKEN where the"
    " downloads run"
)
_REMEDIES = {401: _ALLOW, 403: _ALLOW, 404: "Leave this revision out of 'revisions'"}

Listing = Mapping[str, tuple[str, int]]
"""Digest and bytes of every file, by path.

The digest is SHA-256 for large files (those in LFS) and git's own for others, as in the names of the
hub's cache.
"""


class HubUnreachable(ConfigError):
    """The hub does not answer, refuses, or must not be asked; the message says why."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status  # of the answer; 0 without one


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn what the hub's client raises into `HubUnreachable`: versions of it take their errors
    from different libraries, and a proxy or a firewall can raise anything. Our own errors, and that
    of a full disk, stay.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, DaskmetricsError) or getattr(error, "errno", None) in NO_ROOM:
            raise
        met = error.__cause__ or error  # the client wraps an answer that it did not expect
        answer = getattr(met, "response", None)
        if answer is not None:
            status = int(answer.status_code)
            raise HubUnreachable(f"the hub answers {status}", status) from None
        if getattr(met, "filename", None):  # of this machine
            raise HubUnreachable(str(met)) from None
        raise HubUnreachable(f"the hub cannot be reached ({type(met).__name__})") from None


def persist(
    request: Callable[[], object], what: str, pause: Callable[[float], None] = time.sleep
) -> None:
    """Make a request of the hub's client for ``what``, again after errors of the network and the
    server; a `DataError` if the hub refuses, or several attempts fail.
    """
    for failures in count(1):
        try:
            with client_errors():
                request()
            return
        except HubUnreachable as error:
            fault = Fault.EXCEPTION
            if 400 <= error.status < 500 and error.status not in _PASSING:
                fault = Fault.PERMANENT
            decision = TRIES.after(fault, failures)
            if isinstance(decision, GiveUp):
                remedy = _REMEDIES.get(error.status, "Run the same command again later")
                raise DataError(f"{what} could not be downloaded: {error}. {remedy}.") from None
            pause(decision.delay)


@dataclass(frozen=True)
class Refs:
    """The branches and tags of a repository, and the commit of each."""

    branches: Mapping[str, str]
    tags: Mapping[str, str]

    @property
    def commits(self) -> Mapping[str, str]:
        """Commit of every branch and tag, by name."""
        return {**self.tags, **self.branches}


def ask_refs(source: str) -> Refs:
    """The branches and tags as the hub lists them now; the list is kept.

    Raises
    ------
    HubUnreachable
        If the hub does not answer, or HF_HUB_OFFLINE is set.
    ConfigError
        If the hub has no such repository.
    """
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        raise HubUnreachable("the hub cannot be reached (HF_HUB_OFFLINE is set)")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    with client_errors():
        try:
            listed = HfApi().list_repo_refs(source)
        except RepositoryNotFoundError:
            raise ConfigError(
                f"The hub has no repository '{source}', or shows it to members only: log in with"
                " 'hf auth login' or set HF_TOKEN."
            ) from None
    branches = {ref.name: ref.target_commit for ref in listed.branches}
    tags = {ref.name: ref.target_commit for ref in listed.tags}
    keep(_place("refs", source), {"branches": branches, "tags": tags})
    return Refs(branches, tags)


def refs(source: str) -> tuple[Refs | None, str]:
    """The branches and tags, listed now or kept, and why the hub did not answer ("" if it did)."""
    try:
        return ask_refs(source), ""
    except HubUnreachable as error:
        kept = recall(_place("refs", source))
        if kept and kept.keys() == {"branches", "tags"}:
            return Refs(**kept), str(error)
        return None, str(error)


def refs_of(model: Model) -> tuple[Refs | None, str]:
    """The branches, if the revisions are a range without an end, and why the hub did not answer."""
    assert model.source is not None
    try:
        select_revisions(model.revisions, None)
        return None, "it was not asked"
    except ConfigError:
        pass
    listed, silence = refs(model.source)
    if listed is None:
        raise ConfigError(
            f"Model '{model.name}': 'revisions: {model.revisions}' needs the list of branches of"
            f" '{model.source}', which is not on this machine, and {silence}."
            f"{_similar_folders(model.source)} 'daskmetrics runs prefetch CONFIG' on a machine with"
            f" a network keeps the list in '{cache_folder()}'. Or name the revisions: 'main', a"
            " list, or a range with an end such as 'every 1000 to 143000'."
        )
    return listed, silence


def require_answer(source: str) -> None:
    """Check that the hub has a repository that is not on this machine; a `ConfigError`
    otherwise.
    """
    try:
        ask_refs(source)
    except HubUnreachable as error:
        raise ConfigError(
            f"'{source}' is not in the cache and {error}.{_similar_folders(source)} Give a folder"
            f" of a model, or fetch it on a machine with a network: hf download {source}"
        ) from None


def _similar_folders(source: str) -> str:
    """A hint at folders of this machine with a name like that of a hub id."""
    folders = [str(path) for path in Path(source).parent.glob("*") if path.is_dir()]
    return did_you_mean(source, folders)


def require_on_hub(model: Model, missing: Sequence[str]) -> None:
    """Check that revisions that are not cached can be fetched from the hub; a `ConfigError`
    otherwise.
    """
    if not missing:
        return
    assert model.source is not None
    try:
        available = ask_refs(model.source).commits
    except HubUnreachable as error:
        raise ConfigError(
            f"Model '{model.name}': {shortened(missing)} not in the hub's cache, and {error}. Fetch"
            f" them on a machine with a network: hf download {model.source} --revision {missing[0]}"
        ) from None
    unknown = [name for name in missing if name not in available]
    if unknown:
        existing = ", ".join(training_order(available)[:8])
        raise ConfigError(
            f"Model '{model.name}': {model.source} has no revision {', '.join(unknown)}. It has"
            f" {existing}, ..."
        )


def listings(source: str, commits: Iterable[str], ask: bool) -> dict[str, Listing]:
    """The files of those commits whose list is kept or, with ``ask``, given by the hub.

    Listings are kept, since a commit does not change.
    """
    commits = tuple(dict.fromkeys(commits))
    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = pool.map(lambda commit: _listing(source, commit, ask), commits)
        return {commit: files for commit, files in zip(commits, answers, strict=True) if files}


def _listing(source: str, commit: str, ask: bool) -> Listing | None:
    kept = recall(_place("listing", source, commit))
    if kept or not ask:
        return kept
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    try:
        with client_errors():
            entries = list(HfApi().list_repo_tree(source, revision=commit, recursive=True))
    except HubUnreachable:  # the checkpoint is then named by its commit
        return None
    listing = {}
    for file in entries:
        if isinstance(file, RepoFile):
            digest = file.lfs.sha256 if file.lfs else file.blob_id
            listing[file.path] = (digest, file.size)
    keep(_place("listing", source, commit), listing)
    return listing


def offered(
    source: str, listings: Mapping[str, Listing], pickled: bool, setting: str
) -> tuple[str, str]:
    """How many of the revisions have which weights, by their lists of files, and what to do about
    the others: the ``setting`` that allows pickled weights, if it is not set.
    """
    kinds: dict[str, list[str]] = {
        "safetensors": [],
        "with only pickled weights": [],
        "without weights": [],
    }
    for name, listing in listings.items():
        suffixes = {Path(file).suffix for file in listing if "/" not in file}
        kind = "without weights"
        if ".safetensors" in suffixes:
            kind = "safetensors"
        elif ".bin" in suffixes:
            kind = "with only pickled weights"
        kinds[kind].append(name)
    if not listings:
        return "", ""
    safe = kinds.pop("safetensors")
    texts = [f"{len(safe)} with safetensors"]
    texts += [f"{len(names)} {kind} ({shortened(names)})" for kind, names in kinds.items() if names]
    remedies = []
    if kinds["with only pickled weights"] and not pickled:
        remedies.append(f"set {setting} (no code in them is run)")
    if remedies or kinds["without weights"]:
        remedies.append("leave them out of 'revisions'")
    revisions = plural(len(listings), "revision")
    return f"of {revisions} of {source} {', '.join(texts)}", ", or ".join(remedies)


def _place(*names: str) -> Path:
    return cache_folder() / "hub" / f"{content_key(*names)}.json"
