"""Faults from outside against real maps and runs, judged by a checker of its own: ``python
benchmarks/nemesis.py``, or with ``--of run``.

A cycle waits until a map works, strikes it once at random (a signal to driver, worker, nanny or
scheduler; a file deleted, cut, replaced or changed; a disk without space or inodes, a limit of file
sizes or of open files, also of a worker; a folder that is moved; a second driver), waits until the map records more
items or ends, does what its message says, and checks the journal. Every second map uses a scheduler
and workers of its own processes. A run trains, measures and searches; when it is finished, it must
have decided, scored and stored what a run without strikes did. The checker reads the journal by
itself, and imports nothing of daskmetrics. What may be lost is only what an operator is told to
delete, after files were damaged while no driver held them.
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

ITEMS, BATCH, PATIENCE = 300, 3, 300.0
SIGNALS = ("KILL", "TERM", "STOP")
DIGEST = Path(__file__).resolve().parents[1] / "ci" / "digest.py"
CONFIGURATION = """
name: struck
models:
  - {name: a, train: {width: 16, depth: 2, steps: 8}}
  - {name: b, train: {width: 24, depth: 2, steps: 8}}
corpus: {source: stdlib, prompts: 32}
tasks: ["stdlib:order"]
metrics: [curvature]
search: {budget: 1.0}
"""
MOUNTED = {"map": "size=1m,nr_inodes=64", "run": "size=64m,nr_inodes=4k"}
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


def recorded(journal: Path) -> dict[object, object]:
    """What a journal holds: the value of each item of a map, by its index, or the values of each
    unit of a run, by its key. Broken if a line is damaged, or one is recorded twice or as failed.
    """
    values: dict[object, object] = {}
    for number, entry in enumerate(entries(journal), start=1):
        if entry["type"] != "record":
            continue
        for name, status, value in parts(entry):
            require(status == "ok", f"line {number} has a failed part: {entry}")
            require(name not in values, f"line {number} records a part again: {entry}")
            values[name] = value
    return values


def entries(journal: Path) -> Iterator[dict[str, object]]:
    """The entries of a journal; Broken if a line is damaged."""
    checksum = 0
    *lines, _ = journal.read_bytes().split(b"\n") if journal.exists() else [b""]
    for number, line in enumerate(lines, start=1):
        checksum = zlib.crc32(line[9:], checksum)
        require(line[:9] == b"%08x " % checksum, f"line {number} is damaged: {line[:80]!r}")
        yield json.loads(line[9:])


def parts(record: dict[str, object]) -> Iterator[tuple[object, object, object]]:
    """Name, status and value of each item of a batch, or of a unit of a run: what is the same in
    every attempt.
    """
    value = dict(record.get("value") or {})
    if record["kind"] == "batch":
        for one in value.get("items", ()):
            if "Too many open files" in one.get("reason", ""):
                continue  # the item opened one, as its worker must not; it runs again
            require("value" in one, f"an item failed: {one}")
            yield one["value"]["index"], one["status"], one["value"]["value"]
    else:
        kept = [value.get(name) for name in ("score", "stderr", "n", "values", "loss")]
        yield record["key"], record["status"], kept


def decisions(journal: Path) -> list[object]:
    """The cells that a search chose, in their order; each once, since one is asked again after a
    driver has ended.
    """
    asked = (entry for entry in entries(journal) if entry["type"] == "ask")
    return list(dict.fromkeys(entry["name"] for entry in asked if ":" in str(entry["name"])))


class Site:
    """A map or run and the processes around it; what an operator does about its messages."""

    def __init__(self, place: Path, seed: int, own_scheduler: bool, of: str = "map") -> None:
        self.place, self.seed, self.own_scheduler, self.of = place, seed, own_scheduler, of
        self.folder, self.journal = place / "disk" / "run", place / "disk" / "run" / "journal.jsonl"
        self.processes: list[subprocess.Popen[bytes]] = []  # scheduler and nannies
        self.driver: subprocess.Popen[bytes] | None = None
        self.spawned: list[subprocess.Popen[bytes]] = []
        self.starts, self.said = 0, Counter[str]()
        (place / "disk").mkdir(parents=True)
        self.tmpfs = not subprocess.call(
            ["mount", "-t", "tmpfs", "-o", MOUNTED[of], "none", place / "disk"],
            stderr=subprocess.DEVNULL,
        )
        (place / "nemesis.py").symlink_to(Path(__file__).resolve())
        (place / "cluster.yaml").write_text("kind: existing\naddress: scheduler.json\n")
        (place / "run.yaml").write_text(CONFIGURATION)
        self.environment = {**os.environ, "NEMESIS_WITNESS": str(place / "witness")}
        if of == "run":
            self.environment["DASKMETRICS_CACHE"] = str(place / "cache")

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
        words = ["run", "run.yaml", "--folder", str(self.folder), "--workers", "2"]
        if self.of == "map":
            words = ["map", "nemesis.py:item", "--iterations", str(ITEMS)]
            words += ["--batch-size", str(BATCH), "--folder", str(self.folder)]
            words += ["--max-retries", "1000", "--seed", str(self.seed)]
            words += ["--output", "results.jsonl"]
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
            "holds other files and no run",  # of workers, while the folder was moved away
            "was replaced or cut",
            "There is no store",
            "Stopped.",
            "No room",
            "Too many open files",
            "ulimit -n",
            "No space left",
            "File too large",
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
        self.seen: dict[object, object] = {}
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
        kinds = ("signal", "file", "room", "moved folder", "second driver")
        kind = draw.choices(kinds, (56, 14, 18, 7, 5))[0]
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
            self.take_room(draw.uniform(0.5, 8))
        elif kind == "moved folder":
            self.struck[kind] += 1
            self.move_folder(draw.uniform(0.2, 5))
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
                complete = len(recorded(site.journal)) == ITEMS or site.of == "run"
                require(
                    complete or second.returncode == 2,
                    f"a second driver ends with {second.returncode}",
                )
        return "", at_work

    def take_room(self, seconds: float) -> None:
        """Leave no room for a while: on the disk, its table of files, or for the files of the
        driver, their size or their number, or for more open files of a worker.
        """
        disk, victim = self.site.place / "disk", self.site.driver.pid
        strikes = ["EFBIG", "EMFILE", "EMFILE of a worker"]
        if self.site.tmpfs:
            strikes += ["ENOSPC", "inodes"]
        strike = self.draw.choice(strikes)
        self.struck[strike] += 1
        if strike.endswith("worker"):
            victim = self.draw.choice(self.site.targets("worker") or [self.site.driver]).pid
        filler = disk / "filler"
        filler.mkdir()
        limit = {"EFBIG": resource.RLIMIT_FSIZE}.get(strike, resource.RLIMIT_NOFILE)
        before = resource.getrlimit(limit)
        with suppress(OSError):  # it ended; or there is no room left, as is meant
            match strike:
                case "EFBIG":
                    length = size(self.site.journal) + 100
                    resource.prlimit(victim, limit, (length, before[1]))
                case "EMFILE" | "EMFILE of a worker":
                    opened = len(list(Path(f"/proc/{victim}/fd").iterdir()))
                    resource.prlimit(victim, limit, (opened + self.draw.randrange(4), before[1]))
                case "ENOSPC":
                    free = os.statvfs(disk)
                    (filler / "content").write_bytes(bytes(free.f_bavail * free.f_frsize))
                    (filler / "rest").write_bytes(bytes(2**20))
                case "inodes":
                    for number in range(10_000):
                        (filler / str(number)).touch()
        time.sleep(seconds)
        shutil.rmtree(filler)
        with suppress(OSError):  # it ended
            resource.prlimit(victim, limit, before)

    def move_folder(self, seconds: float) -> None:
        """Move the folder of the run away, and back again in place of what was written there."""
        folder = self.site.folder
        if not folder.exists():
            return
        moved = folder.rename(folder.with_name("moved"))
        time.sleep(seconds)
        require(not self.site.journal.exists(), "a journal began in place of one that was moved")
        shutil.rmtree(folder, ignore_errors=True)
        moved.rename(folder)

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
        if self.site.of == "map":
            ran = Counter(self.ran())
            wrong = [each for each in now.items() if not ran[each]]
            require(not wrong, f"recorded, but these items never ran with this value: {wrong}")
        self.seen = now

    def ran(self) -> list[tuple[int, int]]:
        """Index and value of every execution of an item."""
        witness = self.site.place / "witness"
        rows = map(str.split, witness.read_text().splitlines() if witness.exists() else [])
        return [(int(index), int(value)) for index, value in rows]

    def finish(self, undisturbed: object) -> None:
        """Check a map that is finished: journal, items and results; or a run against one without
        strikes.
        """
        if self.site.of == "run":
            now = answer(self.site)
            require(now == undisturbed, f"the answer is {now}, without strikes {undisturbed}")
            return
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


def answer(site: Site) -> object:
    """What a finished run decided, scored, recommends and stored."""
    done = subprocess.run([sys.executable, DIGEST, site.folder], capture_output=True, text=True)
    require(done.returncode == 0, f"no digest of the run:\n{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if "decisions" not in line]
    return decisions(site.journal), [line for line in lines if "struck" not in line and line]


def undisturbed(place: Path) -> object:
    """The answer of a run without strikes."""
    site = Site(place, 0, own_scheduler=False, of="run")
    try:
        require(site.start().wait() == 0, "a run without strikes ends with an error")
        return answer(site)
    finally:
        site.close()


def main() -> None:
    """Strike maps until there were enough cycles, and print what was struck and what followed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--of", choices=("map", "run"), default="map")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("nemesis"))
    given = parser.parse_args()
    # so that disks and processes are given back
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    draw, struck, said, counts = (
        random.Random(given.seed),
        Counter[str](),
        Counter[str](),
        Counter[str](),
    )
    reference = undisturbed(given.folder.resolve() / "undisturbed") if given.of == "run" else None
    while counts["cycles"] < given.cycles:
        site = Site(
            given.folder.resolve() / f"{given.of}-{counts['maps']}",
            draw.randrange(2**31),
            counts["maps"] % 2 == 1 and given.of == "map",
            given.of,
        )
        nemesis = Nemesis(site, draw)
        try:
            ended = False
            while not ended:
                ended = nemesis.cycle()
                counts["cycles"] += 1
            nemesis.finish(reference)
        except Broken as error:
            counts["broken"] += 1
            print(
                f"{given.of} {counts['maps']}, cycle {counts['cycles']}: {str(error)[-3000:]}, after {dict(nemesis.struck)}",
                flush=True,
            )
            with suppress(FileNotFoundError):  # it may have no folder yet
                shutil.copytree(site.folder, site.place / "broken", dirs_exist_ok=True)
        finally:
            site.close()
            counts += Counter(
                maps=1,
                starts=site.starts,
                recorded=len(nemesis.seen),
                executions=len(nemesis.ran()),
            )
            struck, said = struck + nemesis.struck, said + site.said
            print(f"{dict(counts)}, struck {dict(nemesis.struck)}", flush=True)
    for title, table in (("Struck", struck), ("Messages that were obeyed", said)):
        print(f"{title}: " + ", ".join(f"{count} {name}" for name, count in sorted(table.items())))
    sys.exit(bool(counts["broken"]))


if __name__ == "__main__":
    main()
