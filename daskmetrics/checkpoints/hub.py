"""What the hub says of a model's repository, kept in the cache folder for machines without a
network; and downloads that are tried again.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from daskmetrics.checkpoints.cache import keep, recall
from daskmetrics.checkpoints.folders import revisions_of
from daskmetrics.checkpoints.layout import MODULES, NETWORK, has_weights, relevant
from daskmetrics.config.schema import Model
from daskmetrics.core.errors import (
    NO_ROOM,
    ConfigError,
    DaskmetricsError,
    DataError,
    did_you_mean,
    system_error,
)
from daskmetrics.core.files import cache_folder
from daskmetrics.core.keys import content_key
from daskmetrics.core.text import shortened
from daskmetrics.domain.names import select_revisions, training_order
from daskmetrics.domain.retry import Fault, GiveUp, RetryPolicy

REQUESTS = 8  # at once
TRIES = RetryPolicy(exceptions=4, delay=1.0, longest_delay=60.0)  # beside those of the client
_PASSING = (408, 425, 429)  # the server is busy
# of this machine's files, which stay as they are; a file that another process moves comes again
_LASTING = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG})
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


@dataclass(frozen=True)
class Refs:
    """The commits of a repository's branches and tags, by name.

    Empty if they are not known.
    """

    branches: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    silence: str | None = None  # why the hub did not answer; None if it did

    @property
    def commits(self) -> dict[str, str]:
        """Of every branch and tag."""
        return {**self.tags, **self.branches}


NOT_ASKED = Refs(silence="it was not asked")


class HubUnreachable(ConfigError):
    """The hub does not answer, refuses, or must not be asked.

    The message says why.
    """

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status  # of the answer; 0 without one


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn what the hub's client raises into `HubUnreachable`.

    Versions of it take their errors from different libraries, and a proxy or a firewall can raise
    anything. Our own errors, and that of a full disk, stay. One of this machine's files is the
    cause of what is raised.
    """
    try:
        yield
    except DaskmetricsError:
        raise
    except Exception as error:
        met = error.__cause__ or error  # the client wraps what it did not expect
        if getattr(met, "errno", None) in NO_ROOM:
            raise met from None
        answer = getattr(met, "response", None)
        if answer is not None:
            status = int(answer.status_code)
            raise HubUnreachable(f"the hub answers {status}", status) from None
        if getattr(met, "filename", None):
            raise HubUnreachable(str(met)) from met
        raise HubUnreachable(f"the hub cannot be reached ({type(met).__name__})") from None


def persist(
    request: Callable[[], object], what: str, pause: Callable[[float], None] = time.sleep
) -> None:
    """Make a request for ``what``, again after passing errors.

    It is a `DataError` if the hub or this machine refuses, or several attempts fail.
    """
    for failures in count(1):
        try:
            with client_errors():
                request()
            return
        except HubUnreachable as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in _LASTING:
                raise DataError(f"{what} could not be downloaded: {system_error(cause)}") from None
            fault = Fault.EXCEPTION
            if 400 <= error.status < 500 and error.status not in _PASSING:
                fault = Fault.PERMANENT
            decision = TRIES.after(fault, failures)
            if isinstance(decision, GiveUp):
                remedy = _REMEDIES.get(error.status, "Run the same command again later")
                raise DataError(f"{what} could not be downloaded: {error}. {remedy}.") from None
            pause(decision.delay)


def known_refs(source: str) -> Refs:
    """A repository's branches and tags, listed now or kept.

    A `ConfigError` says that the hub has no such repository.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    refs_file = _place("refs", source)
    try:
        if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
            raise HubUnreachable("the hub cannot be reached (HF_HUB_OFFLINE is set)")
        with client_errors():
            try:
                listed = HfApi().list_repo_refs(source)
            except RepositoryNotFoundError:
                raise ConfigError(
                    f"The hub has no repository '{source}', or shows it to members only: log in"
                    " with 'hf auth login' or set HF_TOKEN."
                ) from None
    except HubUnreachable as error:
        kept = recall(refs_file)
        if kept and kept.keys() == {"branches", "tags"}:
            return Refs(**kept, silence=str(error))
        return Refs(silence=str(error))
    branches = {ref.name: ref.target_commit for ref in listed.branches}
    tags = {ref.name: ref.target_commit for ref in listed.tags}
    keep(refs_file, {"branches": branches, "tags": tags})
    return Refs(branches, tags)


@dataclass(frozen=True)
class HubRevision:
    """What is known of a revision of the hub."""

    name: str
    snapshot: Path | None  # its folder in the hub's cache on this machine
    is_complete: bool  # whether that folder has weights
    commit: str | None
    listing: Listing


@dataclass(frozen=True)
class HubSuite:
    """What is known of the revisions that a model selects."""

    revisions: tuple[HubRevision, ...]
    is_open: bool  # whether the configuration names a range without an end
    silence: str | None  # why the hub did not answer; None if it did


def read_revisions(model: Model) -> HubSuite:
    """What is known of the revisions that a model selects.

    The hub is asked for what the others do not say.
    """
    source = str(model.source)
    refs = NOT_ASKED
    is_open = False
    try:
        names = select_revisions(model.revisions, None)
    except ConfigError:
        is_open = True
        refs = known_refs(source)
        _require_branches(model, refs)
        names = revisions_of(model, refs.branches)
    snapshots = {name: snapshot(source, name) for name in names}
    # the snapshot folder of a cached revision is named by its commit
    cached = {
        name: folder.name
        for name, folder in snapshots.items()
        if folder and has_weights(folder, model.pickled)
    }
    if refs is NOT_ASKED and len(cached) < len(snapshots):
        refs = known_refs(source)
    commits = {**refs.commits, **cached}
    selected = {commits[name] for name in snapshots.keys() & commits.keys()}
    unknown = set() if refs.silence else selected - set(cached.values())
    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = pool.map(lambda commit: _listing(source, commit, commit in unknown), selected)
        listings = dict(zip(selected, answers, strict=True))
    revisions = []
    for name, folder in snapshots.items():
        commit = commits.get(name)
        listing = listings.get(commit or "", {})
        revisions.append(HubRevision(name, folder, name in cached, commit, listing))
    return HubSuite(tuple(revisions), is_open, refs.silence)


def _require_branches(model: Model, refs: Refs) -> None:
    if refs.silence and not refs.commits:
        raise ConfigError(
            f"Model '{model.name}': 'revisions: {model.revisions}' needs the list of branches"
            f" of '{model.source}', which is not on this machine, and {refs.silence}."
            f"{_similar_folders(str(model.source))} 'daskmetrics runs prefetch CONFIG' on a machine"
            f" with a network keeps the list in '{cache_folder()}'. Or name the revisions: 'main', a"
            " list, or a range with an end such as 'every 1000 to 143000'."
        )


def snapshot(source: str, revision: str) -> Path | None:
    """The folder of a revision in the hub's cache, if any."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(source, "config.json", revision=revision)
    if isinstance(config, str):
        return Path(config).parent
    return None


def fetch(source: str, revision: str, pickled: bool) -> Path:
    """Download the files of a revision that are read.

    Returns their folder.
    """
    from huggingface_hub import HfApi, snapshot_download

    folders = []

    def request() -> None:
        files = HfApi().list_repo_files(source, revision=revision)
        # of a revision without weights, what says of which kind it is
        names = relevant(files, pickled) or (NETWORK,)
        folders.append(snapshot_download(source, revision=revision, allow_patterns=list(names)))

    persist(request, f"{source}@{revision}")
    return Path(folders[-1])


def require_answer(source: str, silence: str | None) -> None:
    """Check that the hub has answered for a repository."""
    if silence:
        raise ConfigError(
            f"'{source}' is not in the cache and {silence}.{_similar_folders(source)} Give a folder"
            f" of a model, or fetch it on a machine with a network: hf download {source}"
        )


def _similar_folders(source: str) -> str:
    return did_you_mean(source, map(str, Path(source).parent.glob("*/")))


def require_on_hub(model: Model, missing: Sequence[str], pooling: str) -> None:
    """Check that the hub has revisions that are not cached.

    What a folder of sentence-transformers ships is read when a run is prepared. To be read so, it
    must therefore be on this machine before.
    """
    if not missing:
        return
    assert model.source is not None
    refs = known_refs(model.source)
    if refs.silence:
        raise ConfigError(
            f"Model '{model.name}': {shortened(missing)} not in the hub's cache, and {refs.silence}. Fetch"
            f" them on a machine with a network: hf download {model.source} --revision {missing[0]}"
        )
    available = refs.commits
    unknown = [name for name in missing if name not in available]
    if unknown:
        raise ConfigError(
            f"Model '{model.name}': {model.source} has no revision {', '.join(unknown)}. It has"
            f" {shortened(training_order(available))}."
        )
    if pooling == "as_shipped":
        listing = _listing(model.source, available[missing[0]], ask=True)
        if not listing or MODULES in listing:
            raise ConfigError(
                f"Model '{model.name}': {missing[0]} of {model.source} is not in the hub's cache,"
                f" and as far as is known it has {MODULES}, so how it is to be read is not known."
                f" Fetch it: hf download {model.source} --revision {missing[0]}. Or choose"
                " 'pooling: mean' (or last, cls) for the model."
            )


def _listing(source: str, commit: str, ask: bool) -> Listing:
    """The files of a commit, kept, or with ``ask`` by the hub.

    Empty if neither has them. A list does not change.
    """
    kept = recall(_place("listing", source, commit)) or {}
    if kept or not ask:
        return kept
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    try:
        with client_errors():
            entries = list(HfApi().list_repo_tree(source, revision=commit, recursive=True))
    except HubUnreachable:  # the checkpoint is then named by its commit
        return {}
    listing = {}
    for file in entries:
        if isinstance(file, RepoFile):
            digest = file.lfs.sha256 if file.lfs else file.blob_id
            listing[file.path] = (digest, file.size)
    keep(_place("listing", source, commit), listing)
    return listing


def _place(*names: str) -> Path:
    return cache_folder() / "hub" / f"{content_key(*names)}.json"
