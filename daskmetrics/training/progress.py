"""How far a training program is, as it reports or prints it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

PIPE = "DASKMETRICS_PROGRESS"  # variable with the number of the file that takes the reports
# a bar of tqdm, or one of rich, with what stands before it and its steps
_BAR = re.compile(
    r"(?:(?P<text>[^\r\n|%━]*?):?\s+)?(?:\d+%\|[^|]*\||[━╸╺]+)\s*(?P<step>\d+)/(?P<total>\d+)\s"
)
_LOSS = re.compile(r"loss\w*['\"]?\s*[:=]\s*['\"]?(?P<loss>\d+(?:\.\d+)?(?:e[+-]?\d+)?)", re.I)
# other bars are those of downloads, data and weights
_TRAINS = re.compile(r"|.*(epoch|train|step|iter).*", re.I)
_EPOCH = re.compile(r"epoch\s*:?\s*(?P<epoch>\d+)", re.I)


def progress(step: int, total: int | None = None, **numbers: float) -> None:
    """Report how far a training is, to `daskmetrics train`.

    Nothing happens in a program that was started otherwise. Of many calls in a tenth of a second,
    the last one counts.

    Parameters
    ----------
    step : int
        Steps taken.
    total : int, optional
        Steps of the whole training.
    **numbers : float
        Such as ``loss``; ``samples`` or ``tokens`` that all ranks have learned from until now,
        from which their number per second follows; ``epoch``.

    Examples
    --------
    >>> import daskmetrics
    >>> for step in range(1, 4):
    ...     daskmetrics.progress(step, 3, loss=1 / step, samples=32 * step)
    """
    report(step=int(step), total=total, at=time.monotonic(), **numbers)


def report(**facts: object) -> None:
    """Send facts about this rank to the worker that started it."""
    pipe = os.environ.get(PIPE)
    if pipe:
        # numbers may be those of numpy or torch
        os.write(int(pipe), f"{json.dumps(facts, default=float)}\n".encode())


class ProgressCallback:
    """Reports the progress of a ``Trainer`` of transformers, as `daskmetrics.progress` does.

    Examples
    --------
    >>> import daskmetrics as dm
    >>> trainer.add_callback(dm.ProgressCallback())  # doctest: +SKIP
    """

    def __getattr__(self, name: str) -> Any:
        """Nothing happens at the other events of a ``TrainerCallback``."""
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(f"'ProgressCallback' object has no attribute '{name}'")

    def on_log(
        self,
        args: Any,
        state: Any,
        control: object,
        logs: Mapping[str, float] | None = None,
        **others: object,
    ) -> None:
        """Report the step and what the trainer logs; the trainer calls it.

        Examples
        --------
        >>> trainer.train()  # doctest: +SKIP
        """
        numbers = {name: value for name, value in (logs or {}).items() if name in ("loss", "epoch")}
        of_step = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        progress(state.global_step, state.max_steps, samples=state.global_step * of_step, **numbers)


def printed(text: str) -> dict[str, float]:
    """The latest progress in a piece of what a program prints.

    A bar whose text names an epoch counts the steps of that epoch.

    >>> printed("Epoch 2:  25%|##   | 8/32 [00:01<00:03, 7.5it/s, loss=0.5]")
    {'step': 8, 'total': 32, 'epoch': 2, 'loss': 0.5}
    >>> printed("Epoch 1/1  ━━━━ 13/13 0:00:27 • 0:00:00 0.49it/s v_num: 0.000")
    {'step': 13, 'total': 13, 'epoch': 1}
    >>> printed("{'loss': '3.25', 'epoch': '1.5'}")
    {'loss': 3.25}
    >>> printed("Loading weights: 100%|##| 4/4 [00:01<00:00, 9.1it/s]")
    {}
    """
    facts: dict[str, float] = {}
    for line in re.split(r"[\r\n]+", text):
        bar = _BAR.search(line)
        loss = _LOSS.search(line)
        if bar and _TRAINS.fullmatch(bar["text"] or ""):
            facts |= {"step": int(bar["step"]), "total": int(bar["total"])}
            epoch = _EPOCH.search(bar["text"] or "")
            if epoch:
                facts["epoch"] = int(epoch["epoch"])
        if loss:
            facts["loss"] = float(loss["loss"])
    return facts
