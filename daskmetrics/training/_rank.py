"""One process of a process group: ``python -m daskmetrics.training._rank``, with its `RankSpec`,
pickled, on standard input.

It reports on standard output, one JSON object per line; other output goes to its log. It uses torch
and not Dask, and it ends when its parent process ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.training.data import effective
from daskmetrics.training.ddp.ranks import RankSpec

if TYPE_CHECKING:
    from daskmetrics.training._distributed import World

HEARTBEAT = 0.5  # seconds between two reports
_PR_SET_PDEATHSIG = 1


class RankReporter:
    """Reports this rank's progress on the pipe to the process that started it; a
    `ProgressReporter`.
    """

    def __init__(self, file: int, spec: RankSpec) -> None:
        self.device = "cpu"
        self._file = file
        self._spec = spec
        self._lock = threading.Lock()
        self._step = self._phase = 0
        self._latest: dict[str, Any] = {}
        self._reported_step = 0
        self._reported_at = time.perf_counter()

    def report(self, **facts: Any) -> None:
        line = json.dumps({"rank": self._spec.rank, "attempt": self._spec.attempt, **facts}) + "\n"
        with self._lock:
            os.write(self._file, line.encode())

    def enter(self, step: int, phase: int) -> None:
        self._step = step
        self._phase = phase

    def step_done(self, step: int, loss: float) -> None:
        training = self._spec.training
        reported_at = time.perf_counter()
        rate = None
        if self._reported_step:
            samples = (step - self._reported_step) * effective(training.recipe)
            rate = samples / max(reported_at - self._reported_at, 1e-9)
        self._reported_step = step
        self._reported_at = reported_at
        self._latest = {"took": step, "loss": loss, "rate": rate}
        if self.device != "cpu":
            import torch

            self._latest["memory"] = torch.cuda.max_memory_allocated(self.device)
        if self._spec.rank == 0:
            with (training.folder / "progress.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, "loss": loss, "rate": rate}) + "\n")

    def failed(self, error: BaseException) -> None:
        """Report the error for which this rank stops."""
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        self.report(
            error=text,
            permanent=isinstance(error, DaskmetricsError),
            failed=time.time(),
            step=self._step,
            phase=self._phase,
        )

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Report the rank's position twice a second, also while it waits for the other ranks."""
        end = threading.Event()

        def repeat() -> None:
            while not end.wait(HEARTBEAT):
                self._beat()

        thread = threading.Thread(target=repeat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            self._beat()

    def _beat(self) -> None:
        latest, self._latest = self._latest, {}
        with suppress(OSError):  # the parent has closed the pipe
            self.report(step=self._step, phase=self._phase, **latest)


def main() -> None:
    """Train as the specification says; the exit code is 0 once all revisions are written."""
    _die_with_parent()
    spec: RankSpec = pickle.load(sys.stdin.buffer)
    reporter = RankReporter(os.dup(1), spec)
    os.dup2(2, 1)  # what libraries print goes to the log
    reporter.report(began=os.getpid())
    try:
        with reporter.heartbeat():
            _train(spec, reporter)
    except BaseException as error:
        # before the sockets close, so that the errors of the other ranks come later
        reporter.failed(error)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # threads that wait for the other ranks would keep the process alive


def _train(spec: RankSpec, reporter: RankReporter) -> None:
    from daskmetrics.training import _learning as learning
    from daskmetrics.training._probes import PROBES
    from daskmetrics.training._stage import staged
    from daskmetrics.training.suite import newest_step

    training = spec.training
    recipe, folder, ddp = training.recipe, training.folder, training.ddp
    with _world(spec) as world:
        reporter.device = world.device
        if training.probe:
            nodes = [placement.host.node for placement in spec.placements]
            with staged(folder / "corpus", ddp.stage, world.wait) as corpus:
                measured = PROBES[training.probe](recipe, corpus, world, nodes)
            reporter.report(measured=measured)
            return
        if world.is_leader:
            _truncate(folder / "progress.jsonl", newest_step(folder))
        learning.train(recipe, folder, training.revisions, ddp, world, reporter)


@contextmanager
def _world(spec: RankSpec) -> Iterator[World]:
    """This rank's view of the process group, once all ranks have arrived."""
    import torch
    import torch.distributed as dist

    from daskmetrics.training._distributed import World

    ddp, gpu = spec.training.ddp, spec.placement.gpu
    device, backend = "cpu", "gloo"
    if gpu is not None and torch.cuda.is_available():
        device, backend = f"cuda:{gpu}", "nccl"
        torch.cuda.set_device(device)
    if spec.store is None:
        yield World(device=device)
        return
    timeout = timedelta(seconds=ddp.timeout)
    tcp_store = dist.TCPStore(*spec.store, is_master=False, timeout=timeout)  # type: ignore[attr-defined]
    store = dist.PrefixStore(str(spec.attempt), tcp_store)  # type: ignore[attr-defined]
    _wait_for_ranks(store, spec, ddp.timeout)
    size = len(spec.placements)
    dist.init_process_group(
        backend,
        store=store,
        rank=spec.rank,
        world_size=size,
        timeout=timeout,
    )
    try:
        yield World(spec.rank, size, device)
    finally:
        if sys.exc_info()[0] is None:
            dist.barrier()  # rank 0 writes last; the others wait for it
            dist.destroy_process_group()


def _wait_for_ranks(store: Any, spec: RankSpec, timeout: float) -> None:
    """Wait for all ranks; the error after the timeout names the missing ones."""
    store.set(f"here/{spec.rank}", "1")
    deadline = time.monotonic() + timeout
    missing = list(spec.placements)
    while missing := [rank for rank in missing if not store.check([f"here/{rank.rank}"])]:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"{len(missing)} of {len(spec.placements)} ranks did not arrive in {timeout:.0f} s: "
                f"{'; '.join(map(str, missing))}"
            )
        time.sleep(0.05)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its worker ends, even if this process is stopped."""
    with suppress(AttributeError, OSError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)


def _truncate(path: Path, after: int) -> None:
    """Remove the lines of steps that will be repeated."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= after]
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


if __name__ == "__main__":
    main()
