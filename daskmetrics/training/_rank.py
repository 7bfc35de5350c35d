"""One process of a gang: ``python -m daskmetrics.training._rank``, with its order on standard input.

It says on standard output what it does, one JSON object per line; whatever else prints there goes to its log. It knows
torch and the other ranks, and nothing of who started it, with whom it dies.
"""

from __future__ import annotations

import ctypes
import json
import os
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

from daskmetrics.config import DDP, Recipe
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.training._batches import effective
from daskmetrics.training.ddp._ranks import Order

if TYPE_CHECKING:
    from daskmetrics.training._distributed import World

BEAT = 0.5  # seconds from one sign of life to the next
_PR_SET_PDEATHSIG = 1


class Voice:
    """What this rank says; a `Tell` of the training.

    Parameters
    ----------
    file : int
        Descriptor of the pipe to whoever started this process.
    order : Order
    """

    def __init__(self, file: int, order: Order) -> None:
        self._file, self._order, self._lock = file, order, threading.Lock()
        self._recipe = Recipe.model_validate(order.recipe)
        self._step = self._phase = 0
        self._news: dict[str, Any] = {}
        self._last = (0, time.perf_counter())
        self.device = "cpu"

    def say(self, **facts: Any) -> None:
        line = json.dumps({"rank": self._order.rank, "attempt": self._order.attempt, **facts}) + "\n"
        with self._lock:
            os.write(self._file, line.encode())

    def at(self, step: int, phase: int) -> None:
        self._step, self._phase = step, phase

    def took(self, step: int, loss: float) -> None:
        before, since = self._last
        now = time.perf_counter()
        self._last = step, now
        rate = (step - before) * effective(self._recipe) / max(now - since, 1e-9) if before else None
        self._news = {"took": step, "loss": loss, "rate": rate, **_occupied(self.device)}
        if self._order.rank == 0:
            _note(Path(self._order.folder) / "progress.jsonl", {"loss": loss, "rate": rate}, step)

    def failed(self, error: BaseException) -> None:
        """Say why this rank takes no further step."""
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        again = isinstance(error, DaskmetricsError)
        self.say(error=text, permanent=again, failed=time.time(), step=self._step, phase=self._phase)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Say twice a second where the rank is, also while it waits for the others."""
        end = threading.Event()

        def beat() -> None:
            while not end.wait(BEAT):
                self._beat()

        thread = threading.Thread(target=beat, name="beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
            self._beat()

    def _beat(self) -> None:
        news, self._news = self._news, {}
        with suppress(OSError):  # nobody listens any more
            self.say(step=self._step, phase=self._phase, **news)


def main() -> None:
    """Do what the order says; the exit code is 0 once all revisions are written."""
    _die_with_parent()
    order = Order.from_json(sys.stdin.readline())
    voice = Voice(os.dup(1), order)
    os.dup2(2, 1)  # what libraries print goes to the log
    voice.say(began=os.getpid())
    try:
        with voice.beating():
            _train(order, voice)
    except BaseException as error:
        voice.failed(error)  # before the sockets close, so that the partners' complaints come later
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # threads that wait for the other ranks would keep the process


def _train(order: Order, voice: Voice) -> None:
    from daskmetrics.training import _suite as suite

    recipe, gang = Recipe.model_validate(order.recipe), DDP.model_validate(order.gang)
    folder = Path(order.folder)
    with _world(order, gang) as world:
        voice.device = world.device
        if world.leads:
            _forget(folder / "progress.jsonl", suite.newest(folder))
        suite.train(recipe, folder, order.revisions, gang, world, voice)


@contextmanager
def _world(order: Order, gang: DDP) -> Iterator[World]:
    """This rank among the others, once all have come."""
    import torch

    from daskmetrics.training._distributed import World

    device = "cpu" if order.gpu is None or not torch.cuda.is_available() else f"cuda:{order.gpu}"
    if device != "cpu":
        torch.cuda.set_device(device)
    if order.store is None:
        yield World(device=device)
        return
    import torch.distributed as dist

    wait = timedelta(seconds=gang.timeout)
    meeting = dist.TCPStore(*order.store, is_master=False, timeout=wait)  # type: ignore[attr-defined]
    store = dist.PrefixStore(str(order.attempt), meeting)  # type: ignore[attr-defined]
    _meet(store, order, gang.timeout)
    backend = {"auto": "gloo" if device == "cpu" else "nccl"}.get(gang.backend, gang.backend)
    dist.init_process_group(backend, store=store, rank=order.rank, world_size=len(order.names), timeout=wait)
    try:
        yield World(order.rank, len(order.names), device)
    finally:
        if sys.exc_info()[0] is None:
            dist.barrier()  # the leader writes last; nobody leaves before
            dist.destroy_process_group()


def _meet(store: Any, order: Order, timeout: float) -> None:
    """Wait for all ranks.

    Raises
    ------
    TimeoutError
        After the timeout, with the names of the absent.
    """
    store.set(f"here/{order.rank}", "1")
    until = time.monotonic() + timeout
    absent = list(range(len(order.names)))
    while absent := [rank for rank in absent if not store.check([f"here/{rank}"])]:
        if time.monotonic() > until:
            names = "; ".join(order.names[rank] for rank in absent)
            raise TimeoutError(f"{len(absent)} of {len(order.names)} ranks did not arrive in {timeout:.0f} s: {names}")
        time.sleep(0.05)


def _die_with_parent() -> None:
    """Have the kernel kill this process when its worker ends, even if it is stopped."""
    with suppress(AttributeError, OSError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)


def _occupied(device: str) -> dict[str, Any]:
    """Memory of the GPU in bytes, and its utilisation in percent where the library for it is there."""
    if device == "cpu":
        return {}
    import torch

    told: dict[str, Any] = {"memory": torch.cuda.max_memory_allocated(device)}
    with suppress(Exception):  # pynvml is lacking, or its driver
        told["busy"] = torch.cuda.utilization(device)
    return told


def _note(path: Path, facts: dict[str, Any], step: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **facts}) + "\n")


def _forget(path: Path, after: int) -> None:
    """Drop what was noted of steps that will be taken again."""
    if not path.is_file():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= after]
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


if __name__ == "__main__":
    main()
