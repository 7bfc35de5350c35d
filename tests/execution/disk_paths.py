"""Paths and open files on the simulated disk, with the methods that the modules under test call."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

REGULAR = 0o100600  # the mode of a file

if TYPE_CHECKING:
    from tests.execution.disk import Disk, Inode


class SimPath(PurePosixPath):
    """A path on the simulated disk."""

    disk: Disk

    def _inode(self) -> Inode:
        if str(self) not in self.disk.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return self.disk.names[str(self)]

    def stat(self) -> SimpleNamespace:
        self.disk.step(writes=False)
        place = self.disk.now.host, str(self)
        old = self.disk.seen.get(place)
        # a slow network file system: attributes of a moment ago, until it asks the server
        if old and self.disk.random.random() < 0.5:
            self.disk.seen.pop(place)
        elif old:
            self.disk.happened["old attributes"] += 1
            return SimpleNamespace(
                st_dev=0, st_ino=old[0], st_size=old[1], st_mtime=0.0, st_mode=REGULAR
            )
        inode = self._inode()
        return SimpleNamespace(
            st_dev=0, st_ino=inode.number, st_size=len(inode.data), st_mtime=0.0, st_mode=REGULAR
        )

    def exists(self) -> bool:
        self.disk.step(writes=False)
        return str(self) in self.disk.names

    def is_dir(self) -> bool:
        return False

    def read_bytes(self) -> bytes:
        self.disk.step(writes=False)
        return bytes(self._inode().data)

    def unlink(self, missing_ok: bool = False) -> None:
        self.disk.step()
        if not (missing_ok and str(self) not in self.disk.names):
            self._inode()
            self.disk.rename((str(self), None))

    def rename(self, target: SimPath) -> None:
        self.disk.step()
        inode = self._inode()
        self.disk.rename((str(self), None), (str(target), inode))

    replace = rename

    def mkdir(self, *_: Any, **__: Any) -> None:
        """There is one folder."""

    def open(self, mode: str) -> Any:
        if mode == "rb":
            lines = self.read_bytes().splitlines(keepends=True)
            return _Reader(lines)
        return _Writer(self.disk, self.disk.open(self, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


class _Reader:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.lines)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Writer:
    def __init__(self, disk: Disk, file: int) -> None:
        self.disk, self.file = disk, file

    def write(self, text: bytes) -> None:
        while text:
            text = text[self.disk.write(self.file, text) :]

    def flush(self) -> None:
        """Nothing is buffered."""

    def fileno(self) -> int:
        return self.file

    def close(self) -> None:
        self.disk.close(self.file)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.disk.now.dead:
            self.close()
