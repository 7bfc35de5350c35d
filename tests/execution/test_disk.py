"""Histories of the loop, the journal and the lock on a simulated disk, and whether faults in them
would be noticed.
"""

from __future__ import annotations

import os

import pytest

from daskmetrics.core import files as files
from daskmetrics.core import holder as holder
from daskmetrics.execution import journal as journal
from daskmetrics.execution import loop as loop
from tests.execution.disk_world import DiskWorld
from tests.execution.mutants import Mutant, module_of, source_of

HISTORIES = int(os.environ.get("DASKMETRICS_SEEDS", "100"))
FOR_MUTANTS = 400
RARE = (798,)  # lines that were read after a failed fsync are lost with the power

#: what is planted: the module, its text, and what stands there instead
PLANTED = (
    # what is on the disk
    (journal, "            if wait:\n                os.fsync(self._file)\n", ""),
    (journal, "    os.fsync(folder)  #", "    pass  #"),
    (journal, "                unwritten = self._tail + text\n", "                pass\n"),
    (journal, "            while unwritten:  # a nearly", "            if unwritten:  # a nearly"),
    (journal, "                    os.ftruncate(self._file, self._safe)\n", "                    pass\n"),
    (journal, "            expected += len(self._tail)\n", "            pass\n"),
    (journal, "    if contents.torn or contents.length > _read_mark(path)[0]:", "    if contents.torn:"),
    (journal, "path.read_bytes()[: contents.length])", "path.read_bytes())"),
    (journal, "            self._commit_tail()\n        self.entries.extend", "        self.entries.extend"),
    # what others do meanwhile
    (journal, "            with suppress(StorageError):  #", "            with suppress():  #"),
    (journal, "            size = self._require_in_place()\n", "            size = 0\n"),
    (journal, "if (status.st_dev, status.st_ino) == self._identity and", "if"),
    (journal, " and status.st_size >= expected:", ":"),
    (journal, "compares again\n                self._require_in_place()\n", "compares again\n                pass\n"),
    (journal, "            self._run_lock.check()\n", ""),
    (journal, "    if self.length < committed:", "    if False:"),
    # errors of the place
    (journal, "        with room_for(f\"the journal '{path}'\"), ExitStack()", "        with ExitStack()"),
    (loop, "except StorageError as error", "except KeyError as error"),
    (loop, "self._stuck_since = math.inf\n            return\n", "self._stuck_since = math.inf\n"),
    # the lock
    (journal, "                    if not before.is_dead:\n                        raise _locked(self.path, before)\n", ""),
    (journal, "        if holder is None or holder.nonce != self.holder.nonce:", "        if False:"),
    (holder, "        if self.is_elsewhere:\n            return False\n", ""),
    (journal, "        if not isinstance(error, BlockingIOError):\n            raise\n", "        return file\n"),
    # files that are replaced
    (files, "            partial.replace(path)\n", "            path.open('wb').write(b'half')\n"),
    (files, "os.fsync(", "str("),
)  # fmt: skip


@pytest.mark.parametrize("part", range(10))
def test_no_disk_fault_loses_doubles_or_alters_what_is_committed(part):
    for seed in range(part, HISTORIES, 10):
        try:
            DiskWorld(seed).play()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [Mutant(*planted) for planted in PLANTED], ids=str)
def test_a_fault_in_journal_lock_or_files_is_noticed(mutant: Mutant):
    assert noticed(mutant) is not None


def noticed(mutant: Mutant) -> int | None:
    """The seed of the first history that notices a planted fault."""
    changed = mutant.planted()
    modules = {mutant.module.__name__.rpartition(".")[2]: changed}
    for module, name in ((files, "atomic_write"), (holder, "Holder")):
        if mutant.module is module:  # the journal with it
            modules["journal"] = bound = module_of(journal, source_of(journal))
            vars(bound)[name] = vars(changed)[name]
    for seed in (*RARE, *range(FOR_MUTANTS)):
        try:
            DiskWorld(seed, **modules).play()
        except Exception:
            return seed
    return None
