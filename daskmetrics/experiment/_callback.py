"""A watch beside the ``Trainer`` of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from daskmetrics.config._arrivals import FINISHED
from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment._arguments import configured
from daskmetrics.experiment._watch_process import BackgroundWatch


class WatchCallback:
    """Measure and score each checkpoint that a ``Trainer`` of transformers saves, while it trains on.

    The watch is a process of its own (`daskmetrics.watch`), which follows the trainer's ``output_dir``: training does
    not wait for it. Give the trainer the tokenizer as ``processing_class``, so that it saves it with each checkpoint.

    Parameters
    ----------
    config : str, Path or mapping, optional
        As in `daskmetrics.watch`; by default only what the other arguments say.
    folder : str or Path, optional
        Folder of the run; by default ``runs/NAME``, with the name of the ``output_dir``.
    wait : bool
        Whether the end of the training waits until all checkpoints are scored.
    **arguments
        As in `daskmetrics.watch`, such as ``tasks``, ``budget`` or ``watch={"keep": "best(3)"}``; not ``models``, which
        is the trainer's ``output_dir``.

    Attributes
    ----------
    watching : BackgroundWatch or None
        Once the training has begun; on the main process only.

    Raises
    ------
    ConfigError
        If an argument is not valid, when the training begins.

    Examples
    --------
    >>> import daskmetrics as dm
    >>> scoring = dm.WatchCallback(tasks=["file:reviews.csv"], budget=0.5)
    >>> trainer.add_callback(scoring)  # doctest: +SKIP
    >>> trainer.train()  # doctest: +SKIP
    """

    def __init__(
        self, config: Any = None, *, folder: str | Path | None = None, wait: bool = False, **arguments: Any
    ) -> None:
        if "models" in arguments:
            raise ConfigError("models: leave it out; the model of a WatchCallback is what the trainer saves.")
        self.watching: BackgroundWatch | None = None
        self._config, self._folder, self._wait, self._arguments = config, folder, wait, arguments

    def __getattr__(self, name: str) -> Any:
        """Nothing happens at the other events of a ``TrainerCallback``, whose class would import transformers."""
        if name.startswith("on_"):
            return _nothing
        raise AttributeError(f"'WatchCallback' object has no attribute '{name}'")

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Start the watch, in the main process of the training; the trainer calls it.

        Examples
        --------
        >>> trainer.train()  # doctest: +SKIP
        """
        if state.is_world_process_zero:
            output = Path(args.output_dir).absolute()
            output.mkdir(parents=True, exist_ok=True)
            (output / FINISHED).unlink(missing_ok=True)  # of an earlier training that goes on now
            arguments = {**self._arguments, "models": [output]}
            self.watching = BackgroundWatch(*configured(self._config, arguments, (), self._folder))

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Say that no checkpoint follows; the trainer calls it.

        Examples
        --------
        >>> trainer.train()  # doctest: +SKIP
        """
        if self.watching is not None:
            self.watching.finish()
            if self._wait:
                self.watching.wait()


def _nothing(*_: object, **__: object) -> None:
    pass
