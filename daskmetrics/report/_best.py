"""The recommended arm beside the default arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.core._events import SearchEnded
from daskmetrics.core._files import RunFolder
from daskmetrics.core._outcomes import Difference, mean_difference
from daskmetrics.core._text import plural
from daskmetrics.core.names import Arm
from daskmetrics.report._format import apart, card, number, over, percent, probability, scored
from daskmetrics.report._snippet import snippet

if TYPE_CHECKING:
    from daskmetrics.models import Encoder


@dataclass(frozen=True)
class Best:
    """The recommended arm: the best of those scored on every task or, without any, of those with a score.

    Attributes
    ----------
    arm : Arm
    score, stderr : float or None
        Mean raw score over the tasks of the objective on which both arms were scored, with its standard error.
    scores : mapping
        Raw score and standard error by task.
    probability : float
        That no other arm is better, under the search's posterior.
    confirmed : bool
        Whether this arm has a score on every task of the objective. If not, no arm has, and it is expected to be the
        best of those with a score by the search's statistical model.
    measured : float or None
        Its objective by its own scores, in units of the reward; None if it is not confirmed. No arm that the search
        scored on every task has a greater one.
    default : Arm
        What one takes without a search: by default the last layer of the last checkpoint of the arm's own model.
    default_score, default_stderr : float or None
        Mean raw score of the default arm over the same tasks.
    default_scores : mapping
        Raw score and standard error of the default arm by task.
    weights : mapping
        Weights of the tasks of the objective.
    reward : str
        What the search compared the arms by; ``mean`` is the mean of the raw scores.
    relation : str
        Whether the difference from the default arm is ``within the error`` or ``beyond the error``, by the test of the
        verdict.
    differences : mapping
        By how much the recommended arm's score exceeds the default arm's, by task; see `Run.differences`.
    share : float
        Cost of the search as a share of the exhaustive sweep's cost.
    outlook : mapping
        Why the search ended, what more would buy, what the metrics contributed, and why the recommendation changed:
        sentences by label.
    code : str
        Python that loads the arm.
    source : mapping
        Where the arm's weights are, and how its texts become vectors.
    """

    arm: Arm
    score: float | None
    stderr: float | None
    scores: Mapping[str, Mapping[str, float]]
    probability: float
    confirmed: bool
    measured: float | None
    default: Arm
    default_score: float | None
    default_stderr: float | None
    default_scores: Mapping[str, Mapping[str, float]]
    weights: Mapping[str, float]
    reward: str
    relation: str
    differences: Mapping[str, Difference]
    share: float
    outlook: Mapping[str, str]
    code: str
    source: Mapping[str, Any] = field(default_factory=dict, repr=False)  # what `Encoder.load` needs beside the layer

    def load(self) -> Encoder:
        """Load the arm; this imports torch.

        Returns
        -------
        Encoder
            ``encode(texts)`` gives vectors (texts, dimensions) as in the run, ``encode(texts, stored=True)`` what an
            index stores of them, ``save(folder)`` a model that ends at the layer.

        Raises
        ------
        DataError
            If the weights cannot be loaded, or the folder says something else than when the run began.

        Examples
        --------
        >>> run.best().load().encode(["Which layer is best?"]).shape  # doctest: +SKIP
        (1, 384)
        """
        from daskmetrics.models import Encoder

        return Encoder.load(layer=self.arm.layer, readout=self.arm.readout, **self.source)

    def save(self, folder: str | Path, float32: bool = False) -> Path:
        """Save the arm as a model of sentence-transformers that ends at its layer, with a model card.

        Parameters
        ----------
        folder : str or Path
            A new or an empty folder.
        float32 : bool
            Whether to save an arm that an index stores in another format as one that returns its vectors as float32.

        Returns
        -------
        Path
            The folder; ``SentenceTransformer(folder).encode`` gives the vectors of the arm.

        Raises
        ------
        ConfigError
            If the folder is not empty.
        DataError
            If the model cannot be loaded, cannot be cut after the layer, or if sentence-transformers cannot do what the
            readout of the arm does.

        Examples
        --------
        >>> run.best().save("my-model")  # doctest: +SKIP
        """
        with self.load() as encoder:
            return encoder.save(folder, self._card, float32)

    @property
    def _card(self) -> str:
        """What was measured, for a model card."""
        rows = [
            f"| {task} | {scored(each)} | {scored(self.default_scores.get(task), without='')} |"
            for task, each in self.scores.items()
        ]
        table = "\n".join([f"| task | {self.arm} | {self.default} (default) |", "|---|---|---|", *rows])
        return (
            f"\n## What was measured\n\n{table}\n\n"
            f"Scores ± standard errors. Compared with the default arm: {self.difference}\n\n"
            f"{self.certainty}\n\nThe search paid for {percent(self.share)} of the cost of scoring everything "
            "(assumed).\n"
        )

    @property
    def shared(self) -> tuple[str, ...]:
        """Tasks of the objective on which both arms were scored; the mean scores are taken over them."""
        return tuple(task for task in self.weights if task in self.scores and task in self.default_scores)

    @property
    def over(self) -> str:
        """What the mean scores are the mean of."""
        return over([self.weights[task] for task in self.shared])

    @property
    def name(self) -> str:
        """The arm, called the best only if it was scored on every task."""
        if self.confirmed:
            return f"best arm {self.arm}"
        return f"best arm so far {self.arm}, {self._scored}"

    @property
    def label(self) -> str:
        """The heading of the arm's scores."""
        return "best" if self.confirmed else "best so far"

    @property
    def _scored(self) -> str:
        return f"scored on {sum(task in self.scores for task in self.weights)} of {plural(len(self.weights), 'task')}"

    @property
    def gain(self) -> Difference | None:
        """Mean score above the default arm's; None if no task was scored with both."""
        shared = self.shared
        return mean_difference([self.differences[task] for task in shared], [self.weights[task] for task in shared])

    @property
    def difference(self) -> str:
        """How much better than the default arm this arm is, in a sentence."""
        if self.arm == self.default:
            return "None: the recommended arm is the default arm."
        if self.gain is None:
            return "Unknown: the two arms have no scored task in common."
        optimism = " Somewhat optimistic: the same scores selected the arm." if self.gain.value > 0 else ""
        return f"{apart(self.gain)}, {self.relation}.{optimism}"

    @property
    def certainty(self) -> str:
        """Why the arm is recommended, and what the probability of being best means."""
        text = (
            f"{probability(self.probability)} probability that no other arm is better on these tasks. This follows "
            "from the search's statistical model of all arms, not from a test on fresh data."
        )
        if not self.confirmed:
            return f"The arm is expected to be the best of those with a score; it was {self._scored}. {text}"
        if self.measured is None:  # a run of an earlier version
            return text
        unit = "mean score" if self.reward == "mean" else f"mean in units of the reward ({self.reward})"
        return f"The arm has the greatest {unit} of the arms that the search scored on every task. {text}"

    def _repr_html_(self) -> str:
        rows = {
            self.over: number(self.score, self.stderr),
            f"default {self.default}": number(self.default_score, self.default_stderr),
            "difference": self.difference,
            "certainty": self.certainty,
            "cost": f"{percent(self.share)} of the exhaustive sweep's cost (assumed)",
            **self.outlook,
        }
        return card(self.name[0].upper() + self.name[1:], rows, self.code)


def best_of(
    result: SearchEnded,
    config: Mapping[str, Any],
    weights: Mapping[str, float],
    relation: str,
    differences: Mapping[str, Difference],
    outlook: Mapping[str, str],
    folder: RunFolder,
) -> Best:
    """What a search recommends, with what its run knows beside it."""
    arm, location = result.best_arm, result.location
    protocol = location.get("protocol", config["protocol"])
    pickled = any(model.get("pickled") for model in config["models"] if model["name"] == arm.model)
    best, default, unknown = result.best, result.default, {"score": None, "stderr": None}
    mean, default_mean = (each["mean"] or unknown for each in (best, default))
    return Best(
        arm=arm,
        score=mean["score"],
        stderr=mean["stderr"],
        scores=best["scores"],
        probability=result.probability_best,
        confirmed=result.confirmed,
        measured=best.get("measured"),
        default=result.default_arm,
        default_score=default_mean["score"],
        default_stderr=default_mean["stderr"],
        default_scores=default["scores"],
        weights=weights,
        reward=result.reward,
        relation=relation,
        differences=differences,
        share=result.spent / result.exhaustive,
        outlook=outlook,
        code=snippet(arm, location, protocol, folder.path),
        source={
            **{key: location[key] for key in ("path", "revision", "base") if key in location},
            "protocol": protocol,
            "pickled": pickled,
            "corpus": folder.corpus,
        },
    )
