"""How far a training program is, as it reports it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

PIPE = "DASKMETRICS_PROGRESS"  # variable with the number of the file that takes the reports


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


class TrainerEvents:
    """Does nothing at the events of a ``TrainerCallback``, which would import transformers."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class ProgressCallback(TrainerEvents):
    """Reports the progress of a ``Trainer`` of transformers, as `daskmetrics.progress` does.

    Examples
    --------
    >>> import daskmetrics as dm
    >>> trainer.add_callback(dm.ProgressCallback())  # doctest: +SKIP
    """

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
