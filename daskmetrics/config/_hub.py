"""What the hub says of a model's repository, kept in the cache folder for machines without a network."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.core._files import atomic_write, cache_folder
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import content_key

REQUESTS = 8  # at once


class HubUnreachable(ConfigError):
    """The hub does not answer, or must not be asked; the message says why."""


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
        raise HubUnreachable("HF_HUB_OFFLINE is set")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        found = HfApi().list_repo_refs(source)
    except RepositoryNotFoundError:
        raise ConfigError(f"The hub has no repository '{source}'.") from None
    except Exception as error:  # a missing network can raise anything: proxy, firewall, client
        raise HubUnreachable(f"the hub cannot be reached ({type(error).__name__})") from None
    branches, tags = ({ref.name: ref.target_commit for ref in each} for each in (found.branches, found.tags))
    _keep(_place("refs", source), {"branches": branches, "tags": tags})
    return Refs(branches, tags)


def refs(source: str) -> tuple[Refs | None, str]:
    """The branches and tags, listed now or kept, and why the hub did not answer ("" if it did)."""
    try:
        return ask_refs(source), ""
    except HubUnreachable as error:
        kept = _kept(_place("refs", source)) or {}
        branches, tags = kept.get("branches"), kept.get("tags")
        return (Refs(branches, tags) if isinstance(branches, dict) and isinstance(tags, dict) else None), str(error)


def listings(source: str, commits: Iterable[str], ask: bool) -> dict[str, Mapping[str, str]]:
    """The digest of every file, by path, of those commits whose list is kept or, with ``ask``, given by the hub.

    The digest is SHA-256 for large files (those in LFS) and git's own for others, as in the names of the hub's cache.
    Listings are kept, since a commit does not change.
    """
    commits = tuple(dict.fromkeys(commits))
    with ThreadPoolExecutor(REQUESTS) as pool:
        found = pool.map(lambda commit: _listing(source, commit, ask), commits)
        return {commit: listing for commit, listing in zip(commits, found, strict=True) if listing}


def _listing(source: str, commit: str, ask: bool) -> Mapping[str, str] | None:
    place = _place("files", source, commit)
    if (kept := _kept(place)) or not ask:
        return kept
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    try:
        found = list(HfApi().list_repo_tree(source, revision=commit, recursive=True))
    except Exception:  # of the network or the hub: the checkpoint is then named by its commit
        return None
    files = [each for each in found if isinstance(each, RepoFile)]
    digests = {each.path: each.lfs.sha256 if each.lfs else each.blob_id for each in files}
    _keep(place, digests)
    return digests


def _place(*parts: str) -> Path:
    return cache_folder() / "hub" / f"{content_key(*parts)}.json"


def _kept(place: Path) -> dict[str, Any] | None:
    """What is kept in a file; None if there is none, or it is damaged."""
    with suppress(OSError, ValueError):
        kept = json.loads(place.read_bytes())
        return kept if isinstance(kept, dict) else None
    return None


def _keep(place: Path, content: object) -> None:
    with suppress(OSError):  # a cache folder that cannot be written costs requests only
        place.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(place, json.dumps(content))
