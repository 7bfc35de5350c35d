"""Which layer of which training checkpoint of which model gives the best embeddings?

daskmetrics *measures* every (model, checkpoint, layer) by label-free metrics, *searches* the best one with a bandit
that pays for task evaluations cell by cell, and *reports* the winner with its confidence and cost; all of it as Dask
futures on the workers of a laptop or a Slurm cluster.

Imports run downwards only, and rooms of one floor do not know each other:

===== ========================================================= =====================================================
floor rooms                                                     what they know
===== ========================================================= =====================================================
5     `cli`                                                     the verbs of the command line
4     `experiment`, `mapping`, `report`, `keeping`, `replays`   Dask and domain; any function; runs read, kept, replayed
3     `execution`, `cluster`, `training`, `dashboard`           durable futures; places to run; pretraining; live pages
2     `models`, `tasks`, `store`                                checkpoints to states; texts to scores; the Zarr store
1     `metrics`, `bandit`, `planning`, `corpus`, `suites`       tensors; cells; costs; texts; where checkpoints lie
0     `config`, `steps`, `arms`, `layout`, `status`, `errors`   what is asked for, and the names of things
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
    from daskmetrics.bandit import Policy
    from daskmetrics.mapping import map
    from daskmetrics.report import Run

__version__ = version("daskmetrics")
__all__ = ["__version__", "map", "open", "run"]


def __getattr__(name: str) -> Any:
    if name == "map":  # Dask takes half a second
        from daskmetrics.mapping import map

        return map
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
    from daskmetrics.layout import RunFolder

    wanted = configuration.load(config or configuration.folder() / "demo.yaml", settings)
    place = RunFolder(Path(folder or f"runs/{wanted.name}"))
    with experiment.Display() as display:
        experiment.run(experiment.prepare(wanted, policy), place, display)
    report.write(place)
    return report.Run(place.path)
