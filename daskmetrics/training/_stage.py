"""A copy of a suite's tokens on the node's own disk, where the shared file system is slow."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from daskmetrics.core import files as files
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import content_key
from daskmetrics.core.text import size_text


@contextmanager
def staged(corpus: Path, place: str | None, wait: Callable[[], None]) -> Iterator[Path]:
    """The folder to read a corpus from: its copy in a folder of this node, or itself without such a
    folder.

    The first rank of each node copies, and removes the copy at the end; a copy that a killed rank
    left is used again.

    Parameters
    ----------
    corpus : Path
        A complete folder, which does not change.
    place : str or None
        A folder, which may contain environment variables.
    wait : callable
        Waits for all ranks.

    Raises
    ------
    ConfigError
        If a variable is not set on this node, or the folder cannot hold the copy.

    Examples
    --------
    >>> with staged(Path("suites/a/corpus"), None, wait=lambda: None) as folder:
    ...     print(folder)
    suites/a/corpus
    """
    if place is None:
        yield corpus
        return
    node = os.uname().nodename
    folder = Path(os.path.expandvars(place)).expanduser()
    if "$" in str(folder):
        raise ConfigError(
            f"ddp.stage: a variable of '{place}' is not set on {node}. Name a folder, or leave it "
            "out."
        )
    written = max(path.stat().st_mtime_ns for path in corpus.iterdir())
    copy = (
        folder / f"daskmetrics-{os.getuid()}-{content_key('stage', str(corpus.resolve()), written)}"
    )
    copies = os.environ.get("LOCAL_RANK", "0") == "0"
    if copies:
        _copy(corpus, copy, node)
    wait()
    if not copy.is_dir():  # jobs on one node may have folders of their own
        copies = True
        _copy(corpus, copy, node)
    try:
        yield copy
    finally:
        if copies:  # other ranks keep what they have mapped
            shutil.rmtree(copy, ignore_errors=True)


def _copy(corpus: Path, copy: Path, node: str) -> None:
    """Copy a folder, completely or not at all, unless it is there and the user's own."""
    try:
        if copy.is_dir() and copy.stat().st_uid == os.getuid():
            return
        copy.parent.mkdir(parents=True, exist_ok=True)
        size = sum(path.stat().st_size for path in corpus.iterdir())
        free = shutil.disk_usage(copy.parent).free
        if size > free:
            raise ConfigError(
                f"ddp.stage: the corpus has {size_text(size)}, '{copy.parent}' on {node} has "
                f"{size_text(free)} free. Name another folder, or leave it out."
            )
        with files.private(), files.atomic_folder(copy) as partial:
            shutil.copytree(corpus, partial, dirs_exist_ok=True)
            partial.chmod(0o700)  # copytree gives it the permissions of the original
        if copy.stat().st_uid != os.getuid():
            raise ConfigError(
                f"ddp.stage: '{copy}' on {node} belongs to another user. Name another folder."
            )
    except OSError as error:
        raise ConfigError(
            f"ddp.stage: '{copy.parent}' on {node} cannot hold the copy ({error}). Name another "
            "folder."
        ) from None
