"""Checkpoints of the hub that are on this machine only while they are needed: where, and which files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.config import Model
from daskmetrics.config._content import Content
from daskmetrics.core._files import cache_folder
from daskmetrics.core._text import size_text
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key


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
    model: Model, identity: Key, commit: str, content: Content | None, sizes: Mapping[str, int] | None
) -> Rolling:
    """The files of a checkpoint whose space is limited; a `ConfigError` if they are not known, or too large."""
    from dask.utils import parse_bytes

    source, limit = str(model.source), int(parse_bytes(model.disk))
    if content is None or sizes is None:
        raise ConfigError(
            f"Model '{model.name}': the hub did not list the files of {source} at {commit[:7]}, so that their size is "
            "not known. Run the same command again later, or leave out 'disk'."
        )
    files = tuple((name, digest, sizes[name]) for name, digest in sorted(content.digests.items()))
    needed = sum(size for _, _, size in files)
    if needed > limit:
        raise ConfigError(
            f"Model '{model.name}': 'disk: {model.disk}' is less than one checkpoint: {source} at {commit[:7]} has "
            f"{size_text(needed)}. Give at least twice that, so that the next one is downloaded meanwhile."
        )
    folder = cache_folder() / "checkpoints" / source.replace("/", "--") / identity
    return Rolling(str(folder.absolute()), commit, files, limit, model.tensors == "all")
