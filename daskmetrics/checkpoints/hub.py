"""What the hub says of a model's repository, kept in the cache folder for machines without a
network.

A checkpoint whose space is limited is on this machine only while it is needed: where, and which
files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.checkpoints.content import Content, keep, recall
from daskmetrics.config.schema import Model
from daskmetrics.core.errors import ConfigError, DaskmetricsError, did_you_mean
from daskmetrics.core.files import cache_folder
from daskmetrics.core.names import Key, content_key, select_revisions, training_order
from daskmetrics.core.text import plural, shortened, size_text

REQUESTS = 8  # at once

Listing = Mapping[str, tuple[str, int]]
"""Digest and bytes of every file, by path.

The digest is SHA-256 for large files (those in LFS) and git's own for others, as in the names of the
hub's cache.
"""


class HubUnreachable(ConfigError):
    """The hub does not answer, or must not be asked; the message says why."""


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn what the hub's client raises into `HubUnreachable`: versions of it take their errors
    from different libraries, and a proxy or a firewall can raise anything. Our own errors stay.
    """
    try:
        yield
    except DaskmetricsError:
        raise
    except Exception as error:
        raise HubUnreachable(f"the hub cannot be reached ({type(error).__name__})") from None


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
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError

    with client_errors():
        try:
            listed = HfApi().list_repo_refs(source)
        except RepositoryNotFoundError:
            raise ConfigError(
                f"The hub has no repository '{source}', or shows it to members only: log in with"
                " 'hf auth login' or set HF_TOKEN."
            ) from None
        except HfHubHTTPError as error:
            raise HubUnreachable(f"the hub answers {error.response.status_code}") from None
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
        from huggingface_hub import constants
        from huggingface_hub.file_download import repo_folder_name

        cached = repo_folder_name(repo_id=model.source, repo_type="model")
        if not Path(constants.HF_HUB_CACHE, cached).is_dir():
            error = not_here(model.source, silence)
            raise ConfigError(f"{error}; all of 'revisions': daskmetrics runs prefetch CONFIG")
        raise ConfigError(
            f"Model '{model.name}': 'revisions: {model.revisions}' needs the list of branches of"
            f" {model.source}, which is not on this machine, and {silence}."
            " 'daskmetrics runs prefetch CONFIG' on a machine with a network keeps the list in"
            f" '{cache_folder()}'."
            " Or name the revisions: 'main', a list, or a range with an end such as 'every 1000 to"
            " 143000'."
        )
    return listed, silence


def require_answer(source: str) -> None:
    """Check that the hub has a repository that is not on this machine; a `ConfigError` otherwise."""
    try:
        ask_refs(source)
    except HubUnreachable as error:
        raise not_here(source, str(error)) from None


def not_here(source: str, silence: str) -> ConfigError:
    """The error for a hub id of which nothing is here, given why the hub did not answer; folders of
    this machine with a similar name are named.
    """
    folders = [str(path) for path in Path(source).parent.glob("*") if path.is_dir()]
    return ConfigError(
        f"'{source}' is not in the cache and {silence}.{did_you_mean(source, folders)} Give a"
        f" folder of a model, or fetch it on a machine with a network: hf download {source}"
    )


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
    kinds: dict[str, list[str]] = {"safetensors": [], "only pickled weights": [], "no weights": []}
    for name, listing in listings.items():
        suffixes = {Path(file).suffix for file in listing if "/" not in file}
        kind = "no weights"
        if ".safetensors" in suffixes:
            kind = "safetensors"
        elif ".bin" in suffixes:
            kind = "only pickled weights"
        kinds[kind].append(name)
    if not listings:
        return "", ""
    safe = kinds.pop("safetensors")
    only_pickled, empty = kinds.values()
    texts = [f"{len(safe)} {'has' if len(safe) == 1 else 'have'} safetensors"]
    texts += [f"{len(names)} {kind} ({shortened(names)})" for kind, names in kinds.items() if names]
    remedies = []
    if only_pickled and not pickled:
        remedies.append(f"set {setting} (no code in them is run)")
    if remedies or empty:
        remedies.append("leave them out of 'revisions'")
    remedy = ""
    if remedies:
        remedy = f": {', or '.join(remedies)}"
    return f"of {plural(len(listings), 'revision')} of {source} {', '.join(texts)}", remedy


def _place(*names: str) -> Path:
    return cache_folder() / "hub" / f"{content_key(*names)}.json"


@dataclass(frozen=True)
class Rolling:
    """A checkpoint of the hub that is on this machine only while it is needed."""

    folder: str  # its files while they are here, beside those of other checkpoints of the model
    commit: str
    files: tuple[tuple[str, str, int], ...]  # name, digest and bytes
    limit: int  # bytes of all checkpoints of the model
    whole: bool = False  # whether also tensors that no layer needs are downloaded
    by: str = "driver"  # who downloads: the driver or the workers

    @property
    def bytes(self) -> int:
        """Of all files at the hub."""
        return sum(size for _, _, size in self.files)

    @property
    def complete(self) -> Path:
        """The file that says that all files are here."""
        return Path(self.folder, ".complete")


def rolling(
    model: Model,
    identity: Key,
    commit: str,
    content: Content | None,
    listing: Listing | None,
) -> Rolling:
    """The files of a checkpoint whose space is limited; a `ConfigError` if they are not known, or
    too large.
    """
    from dask.utils import parse_bytes

    source, limit = str(model.source), int(parse_bytes(model.disk))
    if content is None or listing is None:
        raise ConfigError(
            f"Model '{model.name}': the hub did not list the files of {source} at {commit[:7]}, so"
            " that their size is not known. Run the same command again later, or leave out 'disk'."
        )
    files = tuple((name, *listing[name]) for name in sorted(content.digests))
    needed = sum(size for _, _, size in files)
    if needed > limit:
        raise ConfigError(
            f"Model '{model.name}': 'disk: {model.disk}' is less than one checkpoint: {source} at"
            f" {commit[:7]} has {size_text(needed)}. Give at least twice that, so that the next one"
            " is downloaded meanwhile."
        )
    folder = cache_folder() / "checkpoints" / source.replace("/", "--") / identity
    return Rolling(str(folder.absolute()), commit, files, limit, model.tensors == "all")
