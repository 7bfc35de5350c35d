"""Faults from outside against real maps, judged by a checker of its own: ``python
benchmarks/nemesis.py``.

A cycle waits until a map works, strikes it once at random (a signal to driver, worker, nanny or
scheduler; a file deleted, cut, replaced or changed; a full disk; a second driver), waits until the
map records more items or ends, does what its message says, and checks the journal. Every second map
uses a scheduler and workers of its own processes. The checker reads the journal by itself, and
imports nothing of daskmetrics. What may be lost is only what an operator is told to delete, after
files were damaged while no driver held them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

ITEMS, BATCH, PATIENCE = 300, 3, 300.0
SIGNALS = ("KILL", "TERM", "STOP")
FILES = ("journal.jsonl", "journal.mark", "items.jsonl", "lock", "lock.owner")


def item(index: int, *, seed: int) -> dict[str, int]:
    """An item that also writes to a file of the checker that it ran."""
    time.sleep(0.15)
    value = zlib.crc32(b"%d %d" % (index, seed))
    with Path(os.environ["NEMESIS_WITNESS"]).open("a") as witness:
        witness.write(f"{index} {value}\n")
    return {"index": index, "value": value}


class Broken(Exception):
    """An invariant does not hold."""


def require(holds: object, what: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(what)


def recorded(journal: Path) -> dict[int, int]:
    """The value of each item in a journal; Broken if a line is damaged, or an item is recorded
    twice or as failed.
    """
    values: dict[int, int] = {}
    checksum = 0
    *lines, _ = journal.read_bytes().split(b"\n") if journal.exists() else [b""]
    for number, line in enumerate(lines, start=1):
        checksum = zlib.crc32(line[9:], checksum)
        require(line[:9] == b"%08x " % checksum, f"line {number} is damaged: {line[:80]!r}")
        entry = json.loads(line[9:])
        for one in (entry.get("value") or {}).get("items", ()) if entry["type"] == "record" else ():
            require(one["status"] == "ok", f"line {number} has a failed item: {one}")
            require(
                one["value"]["index"] not in values, f"line {number} records an item again: {one}"
            )
            values[one["value"]["index"]] = one["value"]["value"]
    return values


class Site:
    """A map and the processes around it; what an operator does about its messages."""

    def __init__(self, place: Path, seed: int, own_scheduler: bool) -> None:
        self.place, self.seed, self.own_scheduler = place, seed, own_scheduler
        self.folder, self.journal = place / "disk" / "run", place / "disk" / "run" / "journal.jsonl"
        self.processes: list[subprocess.Popen[bytes]] = []  # scheduler and nannies
        self.driver: subprocess.Popen[bytes] | None = None
        self.spawned: list[subprocess.Popen[bytes]] = []
        self.starts, self.said = 0, Counter[str]()
        (place / "disk").mkdir(parents=True)
        self.tmpfs = not subprocess.call(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", place / "disk"],
            stderr=subprocess.DEVNULL,
        )
        (place / "nemesis.py").symlink_to(Path(__file__).resolve())
        (place / "cluster.yaml").write_text("kind: existing\naddress: scheduler.json\n")
        self.environment = {**os.environ, "NEMESIS_WITNESS": str(place / "witness")}

    def spawn(self, *words: str, log: str = "site") -> subprocess.Popen[bytes]:
        """Start a module of Python in the place; what it prints goes to a file."""
        with (self.place / f"{log}.log").open("ab" if log == "site" else "wb") as file:
            command = [sys.executable, "-m", *words]
            process = subprocess.Popen(
                command, cwd=self.place, env=self.environment, stdout=file, stderr=file
            )
        self.spawned.append(process)
        return process

    def tend(self) -> None:
        """Start the scheduler and the nannies that are missing."""
        if not self.own_scheduler:
            return
        where, quiet = ["--scheduler-file", "scheduler.json"], ["--no-dashboard"]
        if not self.processes or self.processes[0].poll() is not None:
            self.end_processes()
            (self.place / "scheduler.json").unlink(missing_ok=True)
            self.processes = [
                self.spawn(
                    "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", *where, *quiet
                )
            ]
            wait(lambda: (self.place / "scheduler.json").exists(), "the scheduler starts")
        alive = [each for each in self.processes if each.poll() is None]
        new = [
            self.spawn("dask", "worker", "--nthreads", "1", *where, *quiet)
            for _ in range(3 - len(alive))
        ]
        self.processes = [*alive, *new]

    def start(self, log: str = "driver") -> subprocess.Popen[bytes]:
        """Start a driver, and what it needs."""
        self.tend()
        self.starts += 1
        words = [
            "map",
            "nemesis.py:item",
            "--iterations",
            str(ITEMS),
            "--batch-size",
            str(BATCH),
            "--folder",
        ]
        words += [
            str(self.folder),
            "--max-retries",
            "1000",
            "--seed",
            str(self.seed),
            "--output",
            "results.jsonl",
        ]
        words += ["--cluster", "cluster.yaml"] if self.own_scheduler else ["--workers", "2"]
        return self.spawn("daskmetrics", *words, log=log)

    def targets(self, kind: str) -> list[psutil.Process]:
        """The live processes of a kind."""
        parents = self.processes[1:] if self.own_scheduler else [self.driver]
        found = {
            "driver": [self.driver],
            "scheduler": self.processes[:1],
            "nanny": self.processes[1:],
        }.get(kind)
        with suppress(psutil.Error):
            if found is not None:
                return [psutil.Process(each.pid) for each in found if each and each.poll() is None]
            children = [
                child for each in parents if each for child in psutil.Process(each.pid).children()
            ]
            return [
                each for each in children if "multiprocessing.spawn" in " ".join(each.cmdline())
            ]
        return []

    def obey(self, code: int, text: str) -> str:
        """Do what the message of a driver that ended says; Broken if it says nothing known."""
        if code < 0:
            return "killed"
        # else it is the log of a worker
        traceback = "Traceback (most" in text and "daskmetrics/__main__.py" in text
        require(not traceback, f"exit code {code} and a traceback:\n{text}")
        if found := re.search(r"remove its lock with: daskmetrics runs unlock (\S+)", text):
            self.spawn("daskmetrics", "runs", "unlock", found[1]).wait()
            return "unlock"
        if found := re.search(r"keep its first (\d+) lines, delete '([^']+)'", text):
            kept = self.journal.read_bytes().splitlines(keepends=True)[: int(found[1])]
            self.journal.write_bytes(b"".join(kept))
            Path(found[2]).unlink(missing_ok=True)
            return "damaged line"
        if found := re.search(r"delete '([^']+\.mark)'", text):
            Path(found[1]).unlink(missing_ok=True)
            return "journal cut or missing"
        known = (
            "is being driven by",
            "lock.owner' is held by",
            "was removed",
            "was replaced or cut",
            "Stopped.",
            "No room",
            "scheduler",
        )
        said = next((each for each in known if each in text), None)
        require(said, f"exit code {code} and no message that this operator knows:\n{text}")
        return str(said)

    def end_processes(self) -> None:
        """End the scheduler, the nannies and their workers."""
        for each in (
            [*self.targets("worker"), *self.processes]
            if self.own_scheduler
            else self.targets("worker")
        ):
            with suppress(psutil.Error):
                each.kill()
        for process in self.processes:
            process.wait()
        self.processes = []

    def close(self) -> None:
        """End everything and give the disk back."""
        self.end_processes()
        for each in self.spawned:
            each.kill()
            each.wait()
        if self.tmpfs:
            subprocess.call(["umount", "-l", self.place / "disk"])


def wait(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until something holds; Broken if it takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        require(time.monotonic() < end, f"waited {seconds:.0f} s until {what}")
        time.sleep(0.05)


def size(path: Path) -> int:
    """The size of a file; 0 without one."""
    return path.stat().st_size if path.exists() else 0


def damage(path: Path, how: str, draw: random.Random) -> None:
    """Delete, cut, replace by a copy, or change one bit of a file; nothing if there is none."""
    if how == "delete":
        path.unlink(missing_ok=True)
    elif not path.exists() or (how != "replace" and not size(path)):  # the lock is empty
        return
    elif how == "cut":
        os.truncate(path, draw.randrange(size(path)))
    elif how == "replace":
        shutil.copy(path, path.with_suffix(".copy")).replace(path)
    else:
        text = bytearray(path.read_bytes())
        text[draw.randrange(len(text))] ^= 1 << draw.randrange(8)
        path.write_bytes(text)


class Nemesis:
    """Strikes a site, and checks it after each cycle."""

    def __init__(self, site: Site, draw: random.Random) -> None:
        self.site, self.draw = site, draw
        self.seen: dict[int, int] = {}
        self.struck = Counter[str]()

    def cycle(self) -> bool:
        """One strike and what follows; whether the map is finished."""
        site, draw = self.site, self.draw
        began = size(site.journal)
        if site.driver is None:
            site.driver = site.start()
        if draw.random() < 0.1:
            time.sleep(draw.uniform(0, 4))  # perhaps while it starts
        else:
            more = draw.randrange(500, 3000)
            self.wait_for(began + more)
        at_work = size(site.journal) > began + 500 and site.driver.poll() is None
        self.check(may_lose=False)
        touched, _ = self.strike(at_work)
        ended = self.settle()
        if ended and touched:  # the file may have been struck after the last look at it
            site.driver = site.start()
            self.settle(until_end=True)
        # what was taken away with the journal runs again: this operator has no backup
        self.check(may_lose=touched == "journal.jsonl")
        return ended

    def wait_for(self, length: int) -> None:
        """Wait until the journal is so long, or the driver ends."""

        def reached() -> bool:
            self.site.tend()
            return self.site.driver.poll() is not None or size(self.site.journal) > length

        wait(reached, f"the map continues after {dict(self.struck)}")

    def strike(self, at_work: bool) -> tuple[str, bool]:
        """Strike once; the file that was struck, if one was, and whether a driver held it."""
        site, draw = self.site, self.draw
        kind = draw.choices(("signal", "file", "room", "second driver"), (70, 16, 9, 5))[0]
        if kind == "signal":
            target = draw.choices(("worker", "nanny", "driver", "scheduler"), (5, 2, 2, 1))[0]
            name = draw.choice(SIGNALS)
            victims = site.targets(target)
            with suppress(psutil.Error, IndexError):
                victim = draw.choice(victims)
                victim.send_signal(getattr(signal, f"SIG{name}"))
                if name == "STOP":
                    time.sleep(draw.uniform(0.2, 5))
                    victim.send_signal(signal.SIGCONT)
                self.struck[f"{name} {target}"] += 1
        elif kind == "file":
            name, how = draw.choice(FILES), draw.choice(("delete", "cut", "replace"))
            if not at_work or draw.random() < 0.3:  # damage that no driver sees happen
                at_work = False
                how = draw.choice((how, "change"))
                site.driver.kill()
                site.driver.wait()
            damage(site.folder / name, how, draw)
            self.struck[f"{how} {name}{' of a live driver' if at_work else ''}"] += 1
            return name, at_work
        elif kind == "room":
            self.struck["no room"] += 1
            self.take_room(draw.uniform(0.5, 8))
        else:
            self.struck["second driver"] += 1
            second = site.start("second")
            wait(
                lambda: second.poll() is not None or site.driver.poll() is not None,
                "one of two drivers ends",
            )
            if second.poll() is None:
                site.driver = second
            elif site.driver.poll() is None:
                # the first driver only closes its workers
                complete = len(recorded(site.journal)) == ITEMS
                require(
                    complete or second.returncode == 2,
                    f"a second driver ends with {second.returncode}",
                )
        return "", at_work

    def take_room(self, seconds: float) -> None:
        """Leave no room for a while: on the disk, or for the files of the driver."""
        filler, driver = self.site.place / "disk" / "filler", self.site.driver.pid
        with suppress(OSError):
            if self.site.tmpfs and self.draw.random() < 0.5:
                filler.write_bytes(bytes(2**20))
            else:
                limits = size(self.site.journal) + 100, resource.RLIM_INFINITY
                resource.prlimit(driver, resource.RLIMIT_FSIZE, limits)
        time.sleep(seconds)
        filler.unlink(missing_ok=True)
        with suppress(OSError):  # it ended
            resource.prlimit(
                driver, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )

    def settle(self, until_end: bool = False) -> bool:
        """Do what the messages say until the map records more, or until it is finished; whether it
        is.
        """
        site = self.site
        for _ in range(10):
            enough = sys.maxsize if until_end else size(site.journal) + 2000
            self.wait_for(enough)
            if (code := site.driver.poll()) is None:
                return False
            if code == 0:
                site.driver = None
                return True
            log = site.place / ("second.log" if site.driver.args[-1] == "second" else "driver.log")
            site.said[site.obey(code, log.read_text(errors="replace"))] += 1
            site.driver = site.start()
        raise Broken("the map ended ten times in a row")

    def check(self, may_lose: bool) -> None:
        """Compare the journal with what was recorded before, and with what the items wrote when
        they ran.
        """
        now = recorded(self.site.journal)
        lost = {index: value for index, value in self.seen.items() if now.get(index) != value}
        require(may_lose or not lost, f"{len(lost)} recorded items were lost or changed: {lost}")
        ran = Counter(self.ran())
        wrong = [each for each in now.items() if not ran[each]]
        require(not wrong, f"recorded, but these items never ran with this value: {wrong}")
        self.seen = now

    def ran(self) -> list[tuple[int, int]]:
        """Index and value of every execution of an item."""
        witness = self.site.place / "witness"
        rows = map(str.split, witness.read_text().splitlines() if witness.exists() else [])
        return [(int(index), int(value)) for index, value in rows]

    def finish(self) -> None:
        """Check a map that is finished: journal, items and results."""
        require(
            sorted(self.seen) == list(range(ITEMS)),
            f"finished with {len(self.seen)} of {ITEMS} items",
        )
        rows = [
            json.loads(line)
            for line in (self.site.place / "results.jsonl").read_text().splitlines()
        ]
        right = [({"index": index, "value": self.seen[index]}, "ok") for index in range(ITEMS)]
        wrong = [
            row
            for row, (value, status) in zip(rows, right, strict=False)
            if (row["value"], row["status"]) != (value, status)
        ]
        require(
            len(rows) == ITEMS and not wrong,
            f"{len(rows)} results, of which these are wrong: {wrong}",
        )
        # it was deleted, and no driver has started since
        if not size(items := self.site.folder / "items.jsonl"):
            self.site.driver = self.site.start()
            self.settle(until_end=True)
            require(size(items), "the file of the items is missing after a further start")
            self.check(may_lose=False)


def main() -> None:
    """Strike maps until there were enough cycles, and print what was struck and what followed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("nemesis"))
    given = parser.parse_args()
    draw, struck, said, counts = (
        random.Random(given.seed),
        Counter[str](),
        Counter[str](),
        Counter[str](),
    )
    while counts["cycles"] < given.cycles:
        site = Site(
            given.folder.resolve() / f"map-{counts['maps']}",
            draw.randrange(2**31),
            counts["maps"] % 2 == 1,
        )
        nemesis = Nemesis(site, draw)
        try:
            ended = False
            while not ended:
                ended = nemesis.cycle()
                counts["cycles"] += 1
            nemesis.finish()
        except Broken as error:
            counts["broken"] += 1
            print(
                f"map {counts['maps']}, cycle {counts['cycles']}: {str(error)[-3000:]}, after {dict(nemesis.struck)}",
                flush=True,
            )
            shutil.copytree(site.folder, site.place / "broken")
        finally:
            site.close()
        counts += Counter(
            maps=1, starts=site.starts, recorded=len(nemesis.seen), executions=len(nemesis.ran())
        )
        struck, said = struck + nemesis.struck, said + site.said
        print(f"{dict(counts)}, struck {dict(nemesis.struck)}", flush=True)
    for title, table in (("Struck", struck), ("Messages that were obeyed", said)):
        print(f"{title}: " + ", ".join(f"{count} {name}" for name, count in sorted(table.items())))
    sys.exit(bool(counts["broken"]))


if __name__ == "__main__":
    main()
