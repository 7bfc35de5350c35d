"""Which layer of which training checkpoint of which model gives the best embeddings?

Begin with the demo. It runs on this machine and needs no file, no network and no GPU; in a shell: ``daskmetrics run``.

>>> import daskmetrics as dm
>>> run = dm.run()  # doctest: +SKIP
>>> run.best()  # doctest: +SKIP

`open` opens a run again, finished or still running:

>>> run = dm.open("runs/demo")  # doctest: +SKIP

Then write your own models into a YAML file (``configs/`` has examples) and give it to `run`, or `train` a suite of
checkpoints first. The same file runs on a laptop and on a Slurm cluster: only its ``cluster`` section changes.
`map` runs any function over any items on the same workers, each item recorded exactly once.

The package measures every (model, checkpoint, layer) by label-free metrics, searches for the best one with a bandit
that pays for task evaluations one by one, and reports the winner with its confidence and cost.

Packages, from the command line down to what everything else uses; each imports only packages below it:

============ ==============================================================================
`cli`        commands of the shell
`planning`   before a run: duration, cost, checks of the machine and the configuration
`report`     after a run: its results as tables, figures and one HTML page
`experiment` what a configuration asks for, as work units of Dask
`execution`  durable futures: work units, their records, retries; `execution.map`
`cluster`    places to run: this machine, Slurm, a running scheduler
`training`   suites of checkpoints, trained by one process or by DDP
`dashboard`  live pages of a run in the Dask dashboard
`models`     from a checkpoint to the hidden states of its layers
`tasks`      from embeddings to a score with its error
`store`      the arrays of a run, as a Zarr store
`metrics`    label-free metrics: functions from states to numbers
`bandit`     the search: policies, posterior, replay of known scores
`config`     the configuration: its sections, and reading it
`core`       names of arms and cells, errors, files, times
============ ==============================================================================

Modules with a leading underscore are internal.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.core.errors import ConfigError, DaskmetricsError

if TYPE_CHECKING:
    from distributed import Client

    from daskmetrics.bandit import Policy
    from daskmetrics.cluster import ProfileCluster
    from daskmetrics.config import Config
    from daskmetrics.execution.map import map
    from daskmetrics.report import Run

__version__ = version("daskmetrics")
__all__ = [
    "ConfigError",
    "DaskmetricsError",
    "ProfileCluster",
    "Run",
    "__version__",
    "map",
    "open",
    "run",
    "train",
]

# imported on first use: Dask takes half a second
_LAZY = {
    "map": "daskmetrics.execution.map",
    "ProfileCluster": "daskmetrics.cluster",
    "Run": "daskmetrics.report",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def open(path: str | Path) -> Run:
    """Open a finished or running run; its files are enough, no scheduler is needed.

    Parameters
    ----------
    path : str or Path
        Folder of the run, such as ``runs/demo``.

    Raises
    ------
    ConfigError
        If the folder holds no run.

    Examples
    --------
    >>> run = open("runs/demo")  # doctest: +SKIP
    >>> run.best()  # doctest: +SKIP
    """
    from daskmetrics.report import Run

    return Run(path)


def run(
    config: str | Path | None = None,
    *,
    settings: Sequence[str] = (),
    folder: str | Path | None = None,
    policy: Policy | None = None,
) -> Run:
    """Run an experiment, or resume it, and open its results.

    Parameters
    ----------
    config : str or Path, optional
        YAML file of the experiment; by default the demo.
    settings : sequence of str
        ``KEY=VALUE`` on top of the file, such as ``search.budget=0.1``.
    folder : str or Path, optional
        Folder of the run; by default ``runs/NAME``.
    policy : Policy, optional
        Your own policy: a function from a `daskmetrics.bandit.State` to a `daskmetrics.bandit.Choice` or None.

    Raises
    ------
    ConfigError
        If the configuration is not valid; nothing was started.
    LockedError
        If another process is driving this run.

    Notes
    -----
    Workers are new processes that import the calling script: in a script, call this function below
    ``if __name__ == "__main__":``. In a notebook this is not needed.

    Examples
    --------
    >>> run(settings=["search.budget=0.1"]).best()  # doctest: +SKIP
    """
    from daskmetrics import config as configuration
    from daskmetrics import experiment, report
    from daskmetrics.core._files import RunFolder

    parsed = configuration.load(config or configuration.folder() / "demo.yaml", settings)
    place = RunFolder(Path(folder or f"runs/{parsed.name}"))
    with experiment.Display() as display:
        experiment.run(experiment.prepare(parsed, policy), place, display)
    finished = report.Run(place.path)
    report.write(finished)
    return finished


def train(client: Client, config: Config | str | Path) -> dict[str, Path]:
    """Train the suites of a configuration on a client's workers, or resume their training.

    Parameters
    ----------
    client : distributed.Client
        Each of its workers runs at most one rank.
    config : Config, str or Path
        An experiment, or its YAML file; its models with a ``train`` section are trained.

    Returns
    -------
    dict
        Folder of each suite by the name of its model; it has one sub-folder per checkpoint.

    Raises
    ------
    ConfigError
        If the configuration is not valid.
    ProcessGroupError
        If ranks fail repeatedly; the last state is kept.

    Examples
    --------
    >>> train(client, "configs/train-and-search.yaml")  # doctest: +SKIP
    """
    from daskmetrics import config as configuration
    from daskmetrics.experiment import Display
    from daskmetrics.experiment import _train as training

    parsed = config if isinstance(config, configuration.Config) else configuration.load(config)
    with Display() as display:
        return training.train(client, parsed, display, training.suites_to_train(parsed))
