"""Which layer of which training checkpoint of which model gives the best embeddings?

Begin with the demo. It runs on this machine and needs no file, no network and no GPU; in a shell:
``daskmetrics run``.

>>> import daskmetrics as dm
>>> run = dm.run()  # doctest: +SKIP
>>> run.best()  # doctest: +SKIP

`open` opens a run again, finished or still running:

>>> run = dm.open("runs/demo")  # doctest: +SKIP

Then name your own models and tasks, or write them into a YAML file (``configs/`` has examples), or
`train` a suite of checkpoints first:

>>> run = dm.run(models=["./my-model"], tasks=[frame], budget=0.2)  # doctest: +SKIP
>>> run.leaderboard()  # doctest: +SKIP

The same file runs on a laptop and on a Slurm cluster: only its ``cluster`` section changes. `map`
runs any function over any items on the same workers, each item recorded exactly once. For one
model, here and now: `layers` scores each layer on your own data, `measure` gives the metrics, and
`embed` the vectors. `watch` follows a training.

The package measures every (model, checkpoint, layer) by label-free metrics, searches for the best
one with a bandit that pays for task evaluations one by one, and reports the winner with its
confidence and cost.

Packages, from the command line down to what everything else uses; each imports only packages below
it:

============= =========================================================================
`cli`         commands of the shell
`planning`    before a run: duration, cost, checks of the machine and the configuration
`report`      after a run: its results as tables, figures and one HTML page
`answer`      after a run: what it found, as numbers
`experiment`  what a configuration asks for, as work units of Dask
`execution`   durable futures: work units, their records, retries; `execution.map`
`cluster`     places to run: this machine, Slurm, a running scheduler
`training`    suites of checkpoints, trained by one process or by DDP
`dashboard`   the live page of a run in the Dask dashboard
`models`      from a checkpoint to the hidden states of its layers
`tasks`       from embeddings to a score with its error
`store`       the arrays of a run, as a Zarr store
`checkpoints` where a model's checkpoints lie, and how they come to this machine
`metrics`     label-free metrics: functions from states to numbers
`bandit`      the search: policies, posterior
`config`      the configuration: its sections, and reading it
`domain`      the vocabulary: candidates, the plan of a run, scores, records
`core`        errors, files, keys, text: what knows nothing of runs
============= =========================================================================

Modules with a leading underscore are internal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from daskmetrics.core import on_first_use
from daskmetrics.core.errors import ConfigError, DaskmetricsError

if TYPE_CHECKING:
    from daskmetrics.bandit import Policy
    from daskmetrics.cluster import ProfileCluster
    from daskmetrics.config import Cluster, Config
    from daskmetrics.experiment.direct import embed, measure
    from daskmetrics.experiment.encoders import Encoder
    from daskmetrics.experiment.mapping import map
    from daskmetrics.experiment.watch_process import BackgroundWatch, WatchCallback
    from daskmetrics.report import BackgroundRun, Leaderboard, Run
    from daskmetrics.training.progress import ProgressCallback, progress

__version__ = next((package.version for package in distributions(name="daskmetrics")), "0+source")
__all__ = [
    "ConfigError",
    "DaskmetricsError",
    "Encoder",
    "ProfileCluster",
    "ProgressCallback",
    "Run",
    "WatchCallback",
    "__version__",
    "embed",
    "layers",
    "map",
    "measure",
    "open",
    "progress",
    "run",
    "train",
    "watch",
]

_PLACES = {
    "Encoder": "daskmetrics.experiment.encoders:Encoder",
    "embed": "daskmetrics.experiment.direct:embed",
    "measure": "daskmetrics.experiment.direct:measure",
    "map": "daskmetrics.experiment.mapping:map",
    "ProfileCluster": "daskmetrics.cluster:ProfileCluster",
    "ProgressCallback": "daskmetrics.training.progress:ProgressCallback",
    "Run": "daskmetrics.report:Run",
    "WatchCallback": "daskmetrics.experiment.watch_process:WatchCallback",
    "progress": "daskmetrics.training.progress:progress",
}
__getattr__ = on_first_use(__name__, _PLACES)  # Dask takes half a second


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
    from daskmetrics.core.files import expanded
    from daskmetrics.report import Run

    return Run(expanded(path).absolute())  # the caller may change the current folder


@overload
def run(
    config: str | Path | Mapping[str, object] | Config | None = ...,
    *,
    background: Literal[True],
    **arguments: Any,
) -> BackgroundRun: ...


@overload
def run(
    config: str | Path | Mapping[str, object] | Config | None = ...,
    *,
    background: Literal[False] = ...,
    **arguments: Any,
) -> Run: ...


def run(
    config: str | Path | Mapping[str, object] | Config | None = None,
    *,
    models: Sequence[object] | str | Path | None = None,
    tasks: Sequence[object] | str | None = None,
    budget: float | None = None,
    client: object = None,
    cluster: str | Path | Mapping[str, object] | Cluster | None = None,
    background: bool = False,
    settings: Sequence[str] = (),
    folder: str | Path | None = None,
    policy: Policy | None = None,
    **sections: object,
) -> Run | BackgroundRun:
    """Run an experiment, or resume it, and open its results.

    Parameters
    ----------
    config : str, Path, mapping or Config, optional
        The experiment: its YAML file, or the same keys and values; by default the demo, or with
        ``models`` nothing. The other arguments replace what it says.
    models : list, optional
        Hub ids, folders, or mappings such as ``{"source": ..., "revisions": "log", "layers":
        "blocks"}``.
    tasks : list, optional
        Names as in a configuration (``"stdlib:order"``, ``"file:reviews.csv"``, ``"mteb:STS12"``);
        DataFrames with the columns text and label, or those of another kind of task; or mappings
        ``{"data": frame, "text": "body", "label": "stars"}``, also with ``name``, ``kind`` and
        ``probe``. Tables are written into the folder of the run.
    budget : float or "auto", optional
        Share of the cost of every score that may be spent; by default the search chooses it.
    client : distributed.Client or cluster of Dask, optional
        Whose workers do the work: a client or a cluster of any class, also an asynchronous one. It
        stays open. Workers need no resources; docs/running.md says how those with the resources
        ``GPU`` and ``CPU`` are used.
    cluster : str, Path, mapping or Cluster, optional
        The profile of a cluster that is started for the run: its name, YAML file or keys.
    background : bool
        Whether to return at once, while the run goes on in a thread.
    settings : sequence of str
        ``KEY=VALUE`` on top, such as ``search.budget=0.1``.
    folder : str or Path, optional
        Folder of the run; by default ``runs/NAME``.
    policy : Policy, optional
        Your own policy: a function from a `daskmetrics.bandit.State` to a
        `daskmetrics.bandit.Choice` or None.
    **sections
        Further sections of a configuration, such as ``name="mine"``,
        ``metrics=["prompt_entropy"]``, ``seed=1`` or ``search={"objective": "classification"}``.

    Returns
    -------
    Run or BackgroundRun
        The finished run; with ``background``, the running one.

    Raises
    ------
    ConfigError
        If the configuration or an argument is not valid, or the client's workers cannot run it;
        nothing was started.
    LockedError
        If another process is driving this run.

    Notes
    -----
    Workers do not import the calling script, so that it needs no ``if __name__ == "__main__":``.
    What it defines is sent to them.

    Examples
    --------
    >>> run(budget=0.1).best()  # doctest: +SKIP
    >>> reviews = {"data": frame, "text": "body", "label": "stars"}  # doctest: +SKIP
    >>> run(models=["sentence-transformers/all-MiniLM-L6-v2"], tasks=[reviews]).leaderboard()  # doctest: +SKIP
    """
    from daskmetrics import experiment, report
    from daskmetrics.execution.runner import client_of
    from daskmetrics.experiment import train as training
    from daskmetrics.experiment.watch import watch as follow

    if client is not None and cluster is not None:
        raise ConfigError("client and cluster: pass one of them.")
    arguments = {"models": models, "tasks": tasks, "budget": budget, "cluster": cluster, **sections}
    with ExitStack() as start:
        parsed, run_folder = experiment.configured(config, arguments, settings, folder, start)
        # a run that trains by programs finds its checkpoints when they appear
        prepared = None
        if not training.programs(parsed):
            prepared = experiment.prepare(parsed, policy)
        if client is None:
            import_module("daskmetrics.cluster.places").import_early(parsed.cluster)
        started = start.pop_all()

    def drive(display: experiment.Display) -> Run:
        with started, nullcontext() if client is None else client_of(client) as run_client:
            if prepared is None:
                follow(parsed, run_folder, display, run_client, trains=True)
            else:
                experiment.run(prepared, run_folder, display, run_client)
        finished = report.Run(run_folder.path)
        report.write(finished)
        return finished

    if background:
        return report.BackgroundRun(drive, run_folder, client)
    with experiment.Display() as display:
        return drive(display)


def layers(
    model: object,
    data: object,
    text: str | None = None,
    label: str | None = None,
    *,
    item: str | None = None,
    group: str | None = None,
    score: str | None = None,
    name: str | None = None,
    layers: str | Sequence[int | str] = "all",
    columns: Mapping[str, str] | None = None,
    tokenizer: object = None,
    readouts: Mapping[str, object] | None = None,
    seed: int = 0,
    **protocol: object,
) -> Leaderboard:
    """Score every layer of models, of encoders or of vectors that exist, on your own data.

    This is done in this process, without a cluster. The scores are those of a run with the same
    data and seed.

    Parameters
    ----------
    model : str, Path, SentenceTransformer or PreTrainedModel, or a list of them
        As in `embed`. Of a folder of checkpoints, all are scored. Or an `Encoder`: any network, of
        items of any kind. Or vectors that exist: an array of shape (n, layers, dimensions), a
        mapping of names to arrays of shape (n, dimensions), a list of these, a DataArray as `embed`
        returns it, or the path of a ``.npz``, a ``.npy`` or a Zarr.
    data : DataFrame, str, Path, dataset of Hugging Face, or list
        Labelled texts; as a path, of a CSV, TSV, JSON Lines or Parquet file or of a folder. Or a
        list of names of tasks, such as ``["stdlib:order", "mteb:STS12"]``. docs/tasks.md says which
        columns make which kind of task. Of vectors: n labels, or floats as grades; or a table,
        whose row i is of vector i, or whose pairs, queries and documents are numbers of vectors.
    text, label : str, optional
        The columns of the texts and of the labels, where they have other names.
    item : str, optional
        The column of the paths of items, of an encoder that reads files.
    group : str, optional
        The column of groups, such as patients or authors: rows of one are in one fold, and errors
        count groups.
    score : str, optional
        Of a classification in place of its accuracy: ``balanced_accuracy``, ``macro_f1``,
        ``average_precision`` or ``mcc``.
    name : str, optional
        Of the task; by default that of the file without its ending, or ``data``.
    layers : "all", "blocks" or sequence of int
        Layer 0 is the embedding output. Of vectors ``all``, or numbers or names.
    columns : mapping of str to str, optional
        Further options of a task on a file: the columns ``first``, ``second``, ``grade``,
        ``query``, ``document`` and ``relevance``, and ``kind`` and ``probe``.
    tokenizer : optional
        Of a model in memory.
    readouts : mapping, optional
        Keys of the section ``readouts`` of a configuration: which poolings and dimensions to
        compare at every layer, such as ``{"pooling": ["mean", "last"], "dimensions": ["all",
        256]}``.
    seed : int
        Of folds, draws and starting points; that of a run is its ``seed``.
    **protocol
        Keys of the section ``protocol`` of a configuration, as in `embed`.

    Returns
    -------
    Leaderboard
        The layers, best first, with standard errors and those that are within the error of the
        best; its ``save(folder)`` saves the best of models. A layer without a score is the subject
        of a warning.

    Raises
    ------
    ConfigError
        If there is no such model, layer, file, column or task, or the vectors are no finite numbers
        or do not fit the labels.
    DataError
        If the model cannot be read in this way, or no layer has a score.

    Examples
    --------
    >>> board = layers("sentence-transformers/all-MiniLM-L6-v2", "reviews.csv", "body", "stars")  # doctest: +SKIP
    >>> print(board)  # doctest: +SKIP
    >>> board.plot()  # doctest: +SKIP
    >>> layers({"conv1": conv1, "conv2": conv2}, species)  # doctest: +SKIP
    """
    from daskmetrics import experiment
    from daskmetrics.experiment import direct as direct
    from daskmetrics.report import Leaderboard

    given = {"text": text, "label": label, "group": group, "score": score, "name": name}
    if item is not None:
        if text is not None:
            raise ConfigError(f"text={text} and item={item} both name the items: give one.")
        given["text"] = item
    named = {option: value for option, value in given.items() if value is not None}
    with experiment.Display() as display:
        layer_scores = direct.score_layers(
            model,
            data,
            {**named, **(columns or {})},
            layers,
            tokenizer,
            seed,
            protocol,
            readouts or {},
            display,
        )
    return Leaderboard.of_layers(layer_scores)


def train(client: object, config: Config | str | Path) -> dict[str, Path]:
    """Train the suites of a configuration on a client's workers, or resume their training.

    Parameters
    ----------
    client : distributed.Client or cluster of Dask
        As in `run`. Each of its workers runs at most one rank.
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
    from daskmetrics.execution.runner import client_of
    from daskmetrics.experiment import Display
    from daskmetrics.experiment import train as training

    parsed = config if isinstance(config, configuration.Config) else configuration.load(config)
    with client_of(client) as train_client, Display() as display:
        return training.train(train_client, parsed, display, training.suites_to_train(parsed))


def watch(
    config: str | Path | Mapping[str, object] | Config | None = None,
    *,
    background: bool = False,
    client: object = None,
    settings: Sequence[str] = (),
    folder: str | Path | None = None,
    **arguments: object,
) -> Run | BackgroundWatch:
    """Measure and score the checkpoints of growing suites as they appear; the twin of `run`.

    Parameters
    ----------
    config, settings, folder, **arguments
        As in `run`; the models are folders, or encoders with ``checkpoints``; ``until_idle``, such
        as ``"10m"``, ends the watch without a new checkpoint.
    background : bool
        Whether to return at once, while the watch goes on in a process of its own, for instance
        beside a training.
    client : distributed.Client or cluster of Dask, optional
        As in `run`. Not with ``background``.

    Returns
    -------
    Run or BackgroundWatch
        The run, once the watch has ended; with ``background``, a handle of the process.

    Raises
    ------
    ConfigError, LockedError
        As in `run`.

    Examples
    --------
    >>> watch(models=["./out"], tasks=["file:reviews.csv"]).best()  # doctest: +SKIP
    """
    from daskmetrics import experiment, report
    from daskmetrics.execution.runner import client_of
    from daskmetrics.experiment.watch import watch as follow
    from daskmetrics.experiment.watch_process import BackgroundWatch

    parsed, run_folder = experiment.configured(config, arguments, settings, folder)
    if background:
        if client is not None:
            raise ConfigError(
                "client: a watch in the background is a process of its own; pass a 'cluster'"
                " instead."
            )
        return BackgroundWatch(parsed, run_folder)
    with (
        nullcontext() if client is None else client_of(client) as run_client,
        experiment.Display() as display,
    ):
        follow(
            parsed,
            run_folder,
            display,
            run_client,
            lambda: report.write(report.Run(run_folder.path)),
        )
    return report.Run(run_folder.path)
