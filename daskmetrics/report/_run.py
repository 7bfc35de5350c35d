"""A run and its answer: the best candidate, the verdict, the leaderboard and the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.answer.answer import Answer, Verdict, answer_of
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.status import status_of
from daskmetrics.answer.trade_offs import TradeOffs, trade_offs_of
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.text import score_text
from daskmetrics.domain.events import scored as scored_units
from daskmetrics.domain.names import Arm, Cell, arm_name, layer_name
from daskmetrics.report._format import Line, fact, need_matplotlib, percent
from daskmetrics.report._leaderboard import Leaderboard
from daskmetrics.report.lines import answer_lines, gain, use
from daskmetrics.report.markup import card
from daskmetrics.report.status import progress, state, status_lines

if TYPE_CHECKING:
    import pandas

    from daskmetrics.cluster import ProfileCluster
    from daskmetrics.models import TextEncoder
    from daskmetrics.report.figures import Plots


FRAME_COLUMNS = [
    "model",
    "checkpoint",
    "layer",
    "readout",
    "task",
    "kind",
    "score",
    "stderr",
    "seconds",
]


#: What a notebook proposes of a run.
DOOR = [
    "answer",
    "best",
    "cluster",
    "config",
    "folder",
    "leaderboard",
    "metrics",
    "plot",
    "scores",
    "state",
    "to_frame",
    "verdict",
]


@dataclass(frozen=True)
class Best:
    """The recommended arm.

    It is the best of those scored on every task or, without any, of those with a score.

    Attributes
    ----------
    answer : Answer
        All numbers of the run's answer.
    source : mapping
        Where the arm's weights are, and how its texts become vectors.
    """

    answer: Answer
    source: Mapping[str, Any] = field(repr=False)  # what `TextEncoder.load` needs beside the layer

    @property
    def arm(self) -> Arm:
        """The arm to use."""
        return self.answer.best.arm

    @property
    def score(self) -> float | None:
        """Mean raw score over the objective; None if incomplete."""
        return self.answer.best.score

    @property
    def stderr(self) -> float | None:
        """The standard error of the score."""
        return self.answer.best.stderr

    def load(self) -> TextEncoder:
        """Load the arm; this imports torch.

        Returns
        -------
        TextEncoder
            ``encode(texts)`` gives vectors (texts, dimensions) as in the run, ``save(folder)`` a
            model that ends at the layer.

        Raises
        ------
        ConfigError
            If the arm is of an encoder of your own.
        DataError
            If the weights cannot be loaded, or the folder has other weights, or says something
            else, than when the run began.

        Examples
        --------
        >>> run.best().load().encode(["Which layer is best?"]).shape  # doctest: +SKIP
        (1, 384)
        """
        from daskmetrics.models import TextEncoder

        if self.answer.encoded_by:
            raise ConfigError(
                f"The best is {self.answer.encoded_by}, your own function: call it, there is no"
                " model of texts to load or save."
            )
        return TextEncoder.load(layer=self.arm.layer, readout=self.arm.readout, **self.source)

    def save(self, folder: str | Path) -> Path:
        """Save the arm as a sentence-transformers model with a model card.

        The model ends at the layer of the arm.

        Parameters
        ----------
        folder : str or Path
            A new or an empty folder.

        Returns
        -------
        Path
            The folder; ``SentenceTransformer(folder).encode`` gives the vectors of the arm.

        Raises
        ------
        ConfigError
            If the folder is not empty.
        DataError
            If the model cannot be loaded, cannot be cut after the layer, or if
            sentence-transformers cannot do what the readout of the arm does.

        Examples
        --------
        >>> run.best().save("my-model")  # doctest: +SKIP
        """
        model_card = _model_card(self.answer)
        with self.load() as encoder:
            return encoder.save(folder, model_card)

    def __repr__(self) -> str:
        return "\n".join(fact(*line) for line in answer_lines(self.answer))

    def _repr_html_(self) -> str:
        _, *others = answer_lines(self.answer)
        return card(f"Use {use(self.answer)}", others)


def _model_card(answer: Answer) -> str:
    rows = []
    shown = answer.best, answer.default
    for task in answer.tasks:
        floor = f" ({task.floor.text})" if task.floor else ""
        scores = (candidate.scores.get(task.name) for candidate in shown)
        texts = (score_text(score.score, score.stderr) if score else "" for score in scores)
        rows.append(f"| {task.name}: {task.main_score}{floor} | {' | '.join(texts)} |")
    names = [arm_name(candidate.arm, answer.layer_names) for candidate in shown]
    lines = [
        "",
        "## What was measured",
        "",
        f"| task | {' | '.join(names)} |",
        "|---|---|---|",
        *rows,
        "",
        f"Scores ± standard errors. Gain: {gain(answer)}. About {percent(answer.cost.share or 0)} of"
        " the time that all scores would take was spent.",
    ]
    return "\n".join(lines)


class Run(RecordedRun):
    """A run's configuration, results and answer.

    Parameters
    ----------
    path : str or Path
        The run's folder.

    Raises
    ------
    ConfigError
        If there is no run in this folder.
    DataError
        If the run has not started, or its journal is damaged.

    Examples
    --------
    >>> run = dm.open("runs/demo")  # doctest: +SKIP
    >>> run.best(), run.leaderboard(), run.plot.heatmap()  # doctest: +SKIP
    """

    def __dir__(self) -> list[str]:
        return DOOR

    def __repr__(self) -> str:
        if self.result:
            return f"<Run {self.folder.path}: {use(self.answer)}>"
        done = progress(status_of(self), bool(self.config["metrics"]))
        return f"<Run {self.folder.path}: {self.state}, {done['measure']}, {done['search']}>"

    def _repr_html_(self) -> str:
        folder = Line("folder", str(self.folder.path))
        if self.result is None:
            return card(self.plan.name, [folder, *status_lines(self, None)])
        lines = [Line("state", self.state), folder, *answer_lines(self.answer)]
        return card(self.plan.name, lines)

    @property
    def state(self) -> str:
        """Whether the run is finished, running or interrupted, in a sentence."""
        return state(self.finished, self.driver)

    def cluster(self, **changes: object) -> ProfileCluster:
        """Workers with the run's profile, for work with its models.

        ``close()`` stops them.

        Parameters
        ----------
        **changes
            Keys that replace those of the profile, such as ``workers=2``.

        Examples
        --------
        >>> with run.cluster(workers=2) as cluster:  # doctest: +SKIP
        ...     cluster.client.submit(sum, [1, 2]).result()
        """
        from daskmetrics.cluster import ProfileCluster

        return ProfileCluster(self.config["cluster"], run=f"{self.plan.name}-notebook", **changes)

    @cached_property
    def answer(self) -> Answer:
        """All numbers of the answer; what `best --json` prints.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.
        """
        return answer_of(self.evidence)

    def marked(self, quantity: str) -> Mapping[str, Sequence[Arm]]:
        """The arms that a picture of a quantity marks, by kind of mark; none without an answer.

        Examples
        --------
        >>> run.marked("reviews")["tied"]  # doctest: +SKIP
        """
        return self.answer.marked(quantity) if self.result else {}

    def best(self) -> Best:
        """The recommended arm.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.

        Examples
        --------
        >>> vectors = run.best().load().encode(["a text", "another"])  # doctest: +SKIP
        """
        location = self.finished_search().location
        arm = self.answer.best.arm
        model = next(model for model in self.config["models"] if model["name"] == arm.model)
        names = ["path", "revision", "base"]
        if not model.get("train"):  # that of a trained suite is of its recipe
            names.append("identity")
        source = {name: location[name] for name in names if name in location}
        source |= {
            "protocol": location.get("protocol", self.config["protocol"]),
            "pickled": bool(model.get("pickled")),
            "corpus": self.folder.corpus,
        }
        return Best(self.answer, source)

    @property
    def verdict(self) -> Verdict:
        """The arms within the error of the best; see `Verdict`.

        Raises
        ------
        DataError
            If the run has no tasks, or its search is not finished.
        """
        return self.answer.verdict

    @property
    def plot(self) -> Plots:
        """Figures as axes of matplotlib; see `Plots`."""
        need_matplotlib()
        from daskmetrics.report.figures import Plots

        return Plots(self, self.marked)

    def trade_offs(self) -> TradeOffs:
        """Scores against costs: layers, parameters, operations, and vector sizes.

        Returns
        -------
        TradeOffs
            Every arm that was scored on all tasks of the objective, and the front of those that no
            other arm beats in both score and cost. A notebook shows the front as a table.

        Raises
        ------
        DataError
            If no arm was scored on all tasks of the objective.

        Examples
        --------
        >>> run.trade_offs().front  # doctest: +SKIP
        """
        return trade_offs_of(self)

    def leaderboard(self) -> Leaderboard:
        """All arms with a score, ordered by their mean.

        The mean is over the tasks of the objective.

        Returns
        -------
        Leaderboard
            Arms that were scored on every task of the objective come first, best first; tied are
            those that the verdict cannot tell from the best, or the same test on raw scores while
            the search is not finished. Arms that lack tasks follow without rank and mean, those
            with the most scores first.

        Examples
        --------
        >>> run.leaderboard().to_frame()  # doctest: +SKIP
        """
        weights = {task: self.weights.get(task, 0.0) for task in self.kinds}
        if self.result is None:
            board = Leaderboard.of(self.compared, weights)
        else:
            overall = self.verdict.overall
            board = Leaderboard.of(self.compared, weights, {*overall.tied}, overall.arm)
        by_model = self.plan.by_model
        suites = {name: by_model[name.model] for name in self.plan.checkpoints}
        return replace(board, suites=suites)

    def to_frame(self) -> pandas.DataFrame:
        """One row per scored cell.

        Returns
        -------
        pandas.DataFrame
            Columns: model, checkpoint, layer, readout (if one was chosen), task, kind (of the
            task), score (raw), stderr (its standard error) and seconds (of scoring, on the worker),
            in the order of the journal.

        Examples
        --------
        >>> run.to_frame().pivot_table(index="layer", columns="task", values="score")  # doctest: +SKIP
        """
        import pandas

        rows = []
        for record, result in scored_units(self.records):
            cell = Cell.parse(record.name)
            arm = cell.arm
            layer = layer_name(arm, self.plan.layer_names)
            named = (arm.model, arm.revision, layer, arm.readout, cell.task, self.kinds[cell.task])
            rows.append((*named, result.score, result.stderr, record.seconds))
        frame = pandas.DataFrame(rows, columns=FRAME_COLUMNS)
        if frame["readout"].any():
            return frame
        return frame.drop(columns="readout")
