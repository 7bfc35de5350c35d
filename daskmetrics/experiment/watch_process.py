"""A watch in a process of its own, beside a training loop or a ``Trainer`` that does not wait for
it.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from daskmetrics.checkpoints.arrivals import followed_folder
from daskmetrics.checkpoints.folders import FINISHED
from daskmetrics.config import Config
from daskmetrics.core.errors import ConfigError, DaskmetricsError, LockedError
from daskmetrics.core.files import RunFolder, atomic_write, open_own
from daskmetrics.execution.journal import holder
from daskmetrics.experiment._arguments import configured
from daskmetrics.training.progress import TrainerEvents

OF_THE_TRAINING = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Variables of a distributed training, which a watch does not take part in."""
POLL = 0.2  # seconds between two looks whether a watch goes on
STOPPED = 130  # exit code of a watch that was asked to end


class BackgroundWatch:
    """A watch that goes on in a process of its own.

    `daskmetrics.watch` makes it with ``background=True``. It goes on if the training is killed. A
    training that is started again leaves the work to a watch that still goes on. As a context
    manager it calls `finish` and `wait` when the block ends.

    Parameters
    ----------
    config : Config
    folder : RunFolder

    Examples
    --------
    >>> watching = dm.watch(models=["./out"], tasks=["file:reviews.csv"], background=True)  # doctest: +SKIP
    >>> for step in range(0, 10_000, 500):  # doctest: +SKIP
    ...     train(steps=500)
    ...     model.save_pretrained(f"out/step{step}")
    ...     tokenizer.save_pretrained(f"out/step{step}")
    >>> watching.finish()  # doctest: +SKIP
    >>> watching.wait()  # doctest: +SKIP
    """

    def __init__(self, config: Config, folder: RunFolder) -> None:
        self.folder = folder.path
        self._folders = [followed_folder(model) for model in config.models]
        self.log = folder.path / "watch.log"
        self._process: subprocess.Popen[bytes] | None = None
        folder.create()
        if holder(folder.lock) is None:
            for followed in self._folders:
                # so that it is a folder and not an id of the hub
                followed.mkdir(parents=True, exist_ok=True)
            text = yaml.safe_dump(config.as_dict(), sort_keys=False)
            written = atomic_write(folder.path / "watch.yaml", text)
            # -P: a module of the working folder must not replace one of Python's own
            command = [sys.executable, "-P", "-m", "daskmetrics", "watch", str(written)]
            environment = {
                name: value for name, value in os.environ.items() if name not in OF_THE_TRAINING
            }
            with open_own(self.log, "ab") as log:
                self._process = subprocess.Popen(
                    [*command, "--folder", str(folder.path)],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )

    @property
    def running(self) -> bool:
        """Whether it goes on, in whatever process.

        That may be one that this object has started, or an earlier one.
        """
        if self._process is not None:
            return self._process.poll() is None
        return holder(RunFolder(self.folder).lock) is not None

    def finish(self) -> None:
        """Say that no checkpoint follows.

        The watch ends once all are measured and scored.
        """
        for followed in self._folders:
            (followed / FINISHED).touch()

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the watch.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default as long as it takes.

        Raises
        ------
        TimeoutError
            If it still goes on.
        DaskmetricsError
            If it failed; the message has the end of its log.
        """
        deadline = math.inf
        if timeout is not None:
            deadline = time.monotonic() + timeout
        while self.running:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"The watch in '{self.folder}' still goes on; its messages are in '{self.log}'."
                )
            time.sleep(POLL)
        if self._process is None:
            return
        code = self._process.returncode
        if code not in (0, STOPPED, -signal.SIGTERM):  # the latter before it could handle it
            lines = self.log.read_text(errors="replace").splitlines()
            end = "\n".join(lines[-5:])
            raise DaskmetricsError(
                f"The watch in '{self.folder}' failed. The end of '{self.log}':\n{end}"
            )

    def stop(self) -> None:
        """End the watch now, after units that are running.

        Started again, it goes on from there.

        Raises
        ------
        LockedError
            If it was started by another object, perhaps of a notebook that was closed.
        """
        if self._process is None and (other := holder(RunFolder(self.folder).lock)):
            raise LockedError(
                f"The watch in '{self.folder}' was started before, and goes on as {other}. End that"
                " process with: kill NUMBER"
            )
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()

    def __enter__(self) -> BackgroundWatch:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.finish()
            self.wait()
        elif self._process is not None:
            self.stop()


class WatchCallback(TrainerEvents):
    """Measure and score each checkpoint that a ``Trainer`` saves.

    The trainer, of transformers, trains on meanwhile. The watch is a process of its own
    (`daskmetrics.watch`), which follows the trainer's ``output_dir``: training does not wait for
    it. Give the trainer the tokenizer as ``processing_class``, so that it saves it with each
    checkpoint.

    Parameters
    ----------
    config : str, Path or mapping, optional
        As in `daskmetrics.watch`; by default only what the other arguments say.
    folder : str or Path, optional
        Folder of the run; by default ``runs/NAME``, with the name of the ``output_dir``.
    wait : bool
        Whether the end of the training waits until all checkpoints are scored.
    **arguments
        As in `daskmetrics.watch`, such as ``tasks`` or ``budget``; not ``models``, which is the
        trainer's ``output_dir``.

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
        self,
        config: str | Path | Mapping[str, object] | Config | None = None,
        *,
        folder: str | Path | None = None,
        wait: bool = False,
        **arguments: object,
    ) -> None:
        if "models" in arguments:
            raise ConfigError(
                "models: leave it out; the model of a WatchCallback is what the trainer saves."
            )
        self.watching: BackgroundWatch | None = None
        self._config = config
        self._folder = folder
        self._wait = wait
        self._arguments = arguments

    def on_train_begin(self, args: Any, state: Any, control: object, **others: object) -> None:
        """Start the watch in the main process of the training.

        The trainer calls it.

        Examples
        --------
        >>> trainer.train()  # doctest: +SKIP
        """
        if state.is_world_process_zero:
            output = Path(args.output_dir).absolute()
            output.mkdir(parents=True, exist_ok=True)
            (output / FINISHED).unlink(missing_ok=True)  # of an earlier training that goes on now
            arguments = {**self._arguments, "models": [output]}
            config, folder = configured(self._config, arguments, (), self._folder)
            self.watching = BackgroundWatch(config, folder)

    def on_train_end(self, args: object, state: object, control: object, **others: object) -> None:
        """Say that no checkpoint follows; the trainer calls it.

        Examples
        --------
        >>> trainer.train()  # doctest: +SKIP
        """
        if self.watching is not None:
            self.watching.finish()
            if self._wait:
                self.watching.wait()
