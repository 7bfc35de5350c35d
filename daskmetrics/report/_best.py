"""The recommended candidate: its numbers, and the model that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.answer.answer import Answer
from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import Difference
from daskmetrics.report._format import card, percent, scored
from daskmetrics.report._sections import answer_rows, gain, use

if TYPE_CHECKING:
    from daskmetrics.models import Encoder


@dataclass(frozen=True)
class Best:
    """The recommended arm: the best of those scored on every task or, without any, of those with a
    score.

    Attributes
    ----------
    answer : Answer
        All numbers of the run's answer.
    source : mapping
        Where the arm's weights are, and how its texts become vectors.
    """

    answer: Answer
    source: Mapping[str, Any] = field(repr=False)  # what `Encoder.load` needs beside the layer

    @property
    def arm(self) -> Arm:
        """The arm to use."""
        return self.answer.best.arm

    @property
    def score(self) -> float | None:
        """Mean raw score over the tasks of the objective that both arms were scored on."""
        return self.answer.best.score

    @property
    def stderr(self) -> float | None:
        """The standard error of the score."""
        return self.answer.best.stderr

    @property
    def default(self) -> Arm:
        """What one takes without a search."""
        return self.answer.default.arm

    @property
    def gain(self) -> Difference | None:
        """Mean score above the default arm's; None if no task was scored with both."""
        return self.answer.difference

    @property
    def share(self) -> float:
        """Cost of the search as a share of the exhaustive sweep's cost."""
        return self.answer.cost.share or 0.0

    def load(self) -> Encoder:
        """Load the arm; this imports torch.

        Returns
        -------
        Encoder
            ``encode(texts)`` gives vectors (texts, dimensions) as in the run, ``save(folder)`` a
            model that ends at the layer.

        Raises
        ------
        DataError
            If the weights cannot be loaded, or the folder says something else than when the run
            began.

        Examples
        --------
        >>> run.best().load().encode(["Which layer is best?"]).shape  # doctest: +SKIP
        (1, 384)
        """
        from daskmetrics.models import Encoder

        return Encoder.load(layer=self.arm.layer, readout=self.arm.readout, **self.source)

    def save(self, folder: str | Path) -> Path:
        """Save the arm as a model of sentence-transformers that ends at its layer, with a model
        card.

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
        with self.load() as encoder:
            return encoder.save(folder, self._card)

    @property
    def _card(self) -> str:
        """What was measured, for a model card."""
        default = self.answer.default.scores
        rows = [
            f"| {task} | {scored(score)} | {scored(default.get(task), without='')} |"
            for task, score in self.answer.best.scores.items()
        ]
        header = [f"| task | {self.arm} | {self.default} |", "|---|---|---|"]
        table = "\n".join([*header, *rows])
        return (
            f"\n## What was measured\n\n{table}\n\nScores ± standard errors. "
            f"Gain: {gain(self.answer)}. About {percent(self.share)} of the time that all scores "
            "would take was spent.\n"
        )

    def __repr__(self) -> str:
        return f"<Best {use(self.answer)}>"

    def __str__(self) -> str:
        return f"{use(self.answer)}\n{gain(self.answer)}"

    def _repr_html_(self) -> str:
        rows = answer_rows(self.answer)
        return card(f"Use {rows.pop('Use')}", rows)


def best_of(run: RecordedRun, answer: Answer) -> Best:
    """The recommended arm of a run whose search is finished."""
    location = run.finished_search().location
    model = next(model for model in run.config["models"] if model["name"] == answer.best.arm.model)
    where = {name: location[name] for name in ("path", "revision", "base") if name in location}
    source = {
        **where,
        "protocol": location.get("protocol", run.config["protocol"]),
        "pickled": bool(model.get("pickled")),
        "corpus": run.folder.corpus,
    }
    return Best(answer, source)
