"""Which layer of which training checkpoint of which model gives the best embeddings?

daskmetrics *measures* every (model, checkpoint, layer) by label-free metrics, *searches* the best one with a bandit
that pays for task evaluations cell by cell, and *reports* the winner with its confidence and cost; all of it as Dask
futures on the workers of a laptop or a Slurm cluster.

Imports run downwards only, and rooms of one floor do not know each other:

===== ========================================================= =====================================================
floor rooms                                                     what they know
===== ========================================================= =====================================================
6     `cli`                                                     the verbs of the command line
5     `forecast`                                                what a run will take, by trials and by what is free
4     `experiment`, `mapping`, `report`, `keeping`, `replays`,  Dask and domain; any function; runs read, kept, replayed
      `doctor`                                                  ...; what will go wrong here
3     `execution`, `cluster`, `training`, `dashboard`           durable futures; places to run; pretraining; live pages
2     `models`, `tasks`, `store`                                checkpoints to states; texts to scores; the Zarr store
1     `metrics`, `bandit`, `planning`, `corpus`, `suites`       tensors; cells; costs; texts; where checkpoints lie
0     `config`, `steps`, `arms`, `layout`, `status`, `topics`,  what is asked for, and the names of things
      `errors`
===== ========================================================= =====================================================

Examples
--------
>>> import daskmetrics as dm
>>> run = dm.open("runs/demo")  # doctest: +SKIP
>>> run.best()  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

    from daskmetrics.bandit import Policy
    from daskmetrics.cluster import ProfileCluster
    from daskmetrics.config import Config
    from daskmetrics.execution.map import map
    from daskmetrics.report import Run

__version__ = version("daskmetrics")
__all__ = ["ProfileCluster", "__version__", "map", "open", "run", "train"]


def __getattr__(name: str) -> Any:
    if name == "map":  # Dask takes half a second
        from daskmetrics.execution.map import map

        return map
    if name == "ProfileCluster":
        from daskmetrics.cluster import ProfileCluster

        return ProfileCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open(path: str | Path) -> Run:
    """A finished or running run, read from its files alone; no scheduler is needed.

    Parameters
    ----------
    path : str or Path
        The run's folder, such as ``runs/demo``.

    Raises
    ------
    ConfigError
        If there is no run in this folder.
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
    """Run an experiment, or resume it, and return it for reading.

    Parameters
    ----------
    config : str or Path, optional
        The experiment's YAML; by default the embedded demo.
    settings : sequence of str
        ``key=value`` on top of it, such as ``search.budget=0.1``.
    folder : str or Path, optional
        Where the run lives; by default ``runs/NAME``.
    policy : Policy, optional
        A policy of one's own: a function from a `daskmetrics.bandit.State` to a `daskmetrics.bandit.Choice` or None.

    Raises
    ------
    ConfigError
        If the configuration cannot be used; nothing was started then.
    LockedError
        If another process is driving this run.

    Notes
    -----
    Workers are new processes, which import the script that calls this: in a script, call it below
    ``if __name__ == "__main__":``. A notebook needs no such care.
    """
    from daskmetrics import config as configuration
    from daskmetrics import experiment, report
    from daskmetrics.core._files import RunFolder

    wanted = configuration.load(config or configuration.folder() / "demo.yaml", settings)
    place = RunFolder(Path(folder or f"runs/{wanted.name}"))
    with experiment.Display() as display:
        experiment.run(experiment.prepare(wanted, policy), place, display)
    report.write(place)
    return report.Run(place.path)


def train(client: Client, config: Config | str | Path) -> dict[str, Path]:
    """Train the suites of a configuration on a client's workers, or resume their training.

    Parameters
    ----------
    client : distributed.Client
        Each of its workers takes at most one rank.
    config : Config, str or Path
        An experiment, or its YAML; its models with a ``train`` section are trained.

    Returns
    -------
    dict
        The folder of each suite by its model's name; in it lies one folder per checkpoint.

    Raises
    ------
    ConfigError
        If the configuration cannot be used.
    ProcessGroupError
        If ranks fail repeatedly; the last state is kept.
    """
    from daskmetrics import config as configuration
    from daskmetrics.experiment import Display
    from daskmetrics.experiment import _train as training

    wanted = config if isinstance(config, configuration.Config) else configuration.load(config)
    with Display() as display:
        return training.train(client, wanted, display, training.suites_to_train(wanted))
