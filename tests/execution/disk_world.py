"""A history of the loop on a simulated disk, with the real journal and lock, and an operator who
obeys them.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from types import ModuleType, SimpleNamespace

from daskmetrics.core import files as files
from daskmetrics.core import holder as holder
from daskmetrics.core.errors import DaskmetricsError, DataError, LockedError, StorageError, room_for
from daskmetrics.domain.events import AttemptFailed, Event, StoreRepaired, to_json
from daskmetrics.domain.record import Record
from daskmetrics.execution import journal as journal
from daskmetrics.execution import loop as loop
from tests.execution import truths
from tests.execution.disk import Disk, Inode, SimPath
from tests.execution.simulator import World

JOURNAL, MARK, LOCK, OWNER, CONFIG = (
    SimPath("/run") / name
    for name in ("journal.jsonl", "journal.mark", "lock", "lock.owner", "config.yaml")
)


class DiskWorld(World):
    """One history.

    Parameters
    ----------
    seed : int
    **mutants : module
        Modules with a planted fault, in place of ``journal``, ``files``, ``holder`` or ``loop``.
    """

    def __init__(self, seed: int, **mutants: ModuleType) -> None:
        under_test = {"journal": journal, "files": files, "holder": holder, "loop": loop, **mutants}
        self.used = SimpleNamespace(**under_test)
        super().__init__(seed, self.used.loop.Loop)
        self.settings = replace(self.settings, commit_every=self.random.choice([1, 1, 4]))
        self.disk = Disk(self.random, self.random.randint(0, 7))
        self.disk.actors = (
            self._delete, self._replace, self._cut, self._delete_mark, self._other_driver, self._unlock,
        )  # fmt: skip
        self.committed: list[str] = []  # what the journal said is on the disk
        self.backup = b""  # of a journal that was deleted or cut
        self.versions = [b"version 0"]  # of a file that is replaced
        self.opened: journal.Journal | None = None
        self.gone = self.taken = False  # the journal, and the lock, of the running driver
        self.touched = False  # whether someone took the journal away since the last message
        self.disk.is_hurt = lambda: self.gone

    def play(self) -> None:
        with self.disk.installed(self.used.journal, self.used.files, self.used.holder):
            self._play()

    def _play(self) -> None:
        for life in count():
            assert life < 60, "it does not end"
            self.process = self.disk.start(self.random.choice("aab"))
            error = None
            try:
                with self.disk.acting(self.process):
                    self._drive(stop=self.stops and life == 0)
                if not self.loop.stopping:
                    break
            except truths.Crash:
                pass
            except DaskmetricsError as raised:
                error = raised
            self.crashes += 1
            self.disk.kill(self.process)
            self.disk.trouble = self.opened = None
            with self.disk.quietly():
                self._check_replaced()
                if error:
                    self._obey(error)
            self.taken = False
        truths.end(self)
        self._check_end()

    def _drive(self, stop: bool) -> None:
        self.versions.append(b"version %d" % len(self.versions))
        with room_for("the files of the run"):
            self.used.files.atomic_write(CONFIG, self.versions[-1])
        with self.used.journal.Journal(JOURNAL, LOCK) as self.opened:
            assert not self._missing(map(_text, self.opened.entries)), "a committed entry is lost"
            self.taken = False
            inode = self.process.files[self.opened._file]
            is_there = self.disk.names.get(str(JOURNAL)) is inode
            self.gone = not is_there or len(inode.data) < self.opened._safe
            self.journal = _Log(self, self.opened)
            left = Counter(entry.key for entry in truths.attempts_of(self))
            self.forgiven &= left  # what did not wait for the disk may be lost
            try:
                self._live(crash=False, stop=stop)
            except StorageError as error:
                raise AssertionError("it did not pause") from error

    def commit(self, entries: Iterable[Event]) -> None:
        """Note what the journal says is on the disk, and that a power failure would not lose it.

        What is written to a journal that was taken away does not count.
        """
        if self.gone:
            return
        self.committed += map(_text, entries)
        inode = self.disk.names[str(JOURNAL)]
        assert not inode.writes, "a power failure would lose a committed entry"
        assert self.disk.durable_names.get(str(JOURNAL)) is inode, (
            "a power failure would lose the journal"
        )

    def _missing(self, texts: Iterable[str]) -> Counter[str]:
        return Counter(self.committed) - Counter(texts)

    # what people and other programs do meanwhile

    def _delete(self) -> None:
        if self._takes_away():
            JOURNAL.unlink()

    def _replace(self) -> None:
        if self._takes_away():
            self._put(self.backup)

    def _cut(self) -> None:
        if self._takes_away():
            inode = self.disk.names[str(JOURNAL)]
            self.disk.remember(str(JOURNAL))
            length = self.random.randint(0, max(0, len(inode.data) - 1))
            inode.do(length)
            inode.synchronize()
            # what is not certainly on the disk is written again
            writing = self.opened is not None and self.opened._writing
            self.gone = length < (self.opened._safe if writing else len(self.backup))

    def _takes_away(self) -> bool:
        """Remember the content of the journal; whether its loss can be noticed.

        Without a driver the mark must tell it, which a power failure can set back.
        """
        content = JOURNAL.read_bytes() if JOURNAL.exists() else None
        marked = MARK.exists() and journal._read_mark(JOURNAL)[0] == len(content or b"")
        if (
            content is None
            or self.gone
            or self.disk.truncates
            or not (marked or (self.opened and MARK.exists()))
        ):
            return False
        self.backup, self.gone, self.touched = content, True, True
        return True

    def _put(self, content: bytes) -> None:
        """Write the journal as another program does, which waits for the disk."""
        self.disk.rename((str(JOURNAL), Inode(content)))
        self.disk.synchronize_names()

    def _delete_mark(self) -> None:
        if not self.gone:
            MARK.unlink(missing_ok=True)

    def _other_driver(self) -> None:
        """Another process tries to drive the run."""
        process = self.disk.start(self.random.choice("ab"))
        held = self._is_held()
        with self.disk.acting(process):
            try:
                with self.used.journal.Journal(JOURNAL, LOCK) as other:
                    assert not held, "two drivers at once"
                    self.taken = self.opened is not None
                    other.append(StoreRepaired([]))
                    self.committed.append(_text(StoreRepaired([])))
                    if self.random.random() < 0.3:
                        self.disk.kill(process)
            except truths.Crash:
                pass
            except DaskmetricsError as error:
                assert isinstance(error, LockedError) or not held, error
        self.disk.kill(process)

    def _unlock(self) -> None:
        """Someone on another machine removes the lock, and perhaps drives the run."""
        if self.opened and not self.opened._writing and self._is_held():
            self.used.journal.unlock(LOCK)
            self.taken = True
            if self.random.random() < 0.5:
                self._other_driver()

    def _is_held(self) -> bool:
        owner = self.disk.names.get(str(OWNER))
        return bool(owner and self.opened and f'"pid": {self.process.pid},'.encode() in owner.data)

    # the operator

    def _obey(self, error: DaskmetricsError) -> None:
        """Do what a message says."""
        text = str(error)
        match error:
            case DataError() if line := re.match(r"Line (\d+) of '.*' is damaged", text):
                assert "keep its first" in text
                lines = JOURNAL.read_bytes().splitlines(keepends=True)
                self._put(self.backup if self.gone else b"".join(lines[: int(line[1]) - 1]))
                MARK.unlink(missing_ok=True)
            case DataError():
                assert "backup" in text
                assert self.touched, "the journal was not taken away"
                self._put(self.backup)
                # it may count an entry that was not reported as committed
                MARK.unlink(missing_ok=True)
            case LockedError() if "daskmetrics runs unlock /run" in text:
                assert "unknown machine" not in text or self.disk.happened["trouble"], (
                    "the owner is not known"
                )
                self.used.journal.unlock(LOCK)
            case LockedError() | StorageError():
                assert (
                    "stop" in text.lower()
                    or "run the same command again" in text
                    or "Wait for it" in text
                ), text
            case _:
                raise AssertionError(f"no remedy: {text}")
        if isinstance(error, DataError):
            self.gone = self.touched = False

    # what must hold

    def _check_replaced(self) -> None:
        assert not CONFIG.exists() or CONFIG.read_bytes() in self.versions, (
            "a file is neither old nor new"
        )

    def _check_end(self) -> None:
        """A reader of its own finds every committed entry, every key once, and the same after a
        power failure.
        """
        if self.gone:  # after the last look at it
            self._put(self.backup)
        inode = self.disk.names[str(JOURNAL)]
        for content in (inode.data, inode.durable):
            texts = read_alone(bytes(content))
            assert not self._missing(texts), "a committed entry is lost"
            keys = [entry["key"] for entry in map(json.loads, texts) if entry["type"] == "record"]
            assert len(keys) == len(set(keys)), "recorded twice"
        assert str(OWNER) not in self.disk.names or self.disk.happened["trouble"] or self.taken, (
            "still locked"
        )


class _Log:
    """The journal as the loop sees it, and what the world has to know of it."""

    def __init__(self, world: DiskWorld, opened: journal.Journal) -> None:
        self.world, self.opened, self.crash = world, opened, None
        self.waiting: list[Event] = []

    @property
    def entries(self) -> list[Event]:
        return self.opened.entries

    def append(self, *entries: Event, wait: bool = True) -> None:
        gone, taken = self.world.gone, self.world.taken
        for entry in entries:
            if isinstance(entry, AttemptFailed):
                self.world.tried_at.setdefault(entry, self.world.now)
        self.opened.append(*entries, wait=wait)
        assert not taken, "it wrote although its lock was removed"
        assert not gone or self.world.disk.is_network, (
            "it wrote although its journal was taken away"
        )
        self.waiting += entries
        if wait:
            self.world.commit(self.waiting)
            self.waiting = []

    def records(self):
        return (replace(entry, at=0.0) for entry in self.entries if isinstance(entry, Record))


def _text(entry: Event) -> str:
    return json.dumps(to_json(entry))


def read_alone(content: bytes) -> list[str]:
    """The entries of a journal as JSON texts, by a reader of its own; AssertionError for a damaged
    line.
    """
    checksum, texts = 0, []
    for line in content.splitlines():
        checksum = zlib.crc32(line[9:], checksum)
        assert line[:9] == b"%08x " % checksum, "a line is damaged"
        texts.append(json.dumps(json.loads(line[9:])))
    return texts[1:]
