"""The recommended arm beside the default arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskmetrics.core._outcomes import Difference, mean_difference
from daskmetrics.core.names import Arm
from daskmetrics.report._format import apart, card, number, percent, probability

NOISE = 2.0  #: standard errors; a smaller difference is within the error


@dataclass(frozen=True)
class Best:
    """The recommended arm.

    Attributes
    ----------
    arm : Arm
    score, stderr : float or None
        Mean raw score over the tasks on which both arms were scored, with its standard error.
    scores : mapping
        Raw score and standard error by task.
    probability : float
        That no other arm is better, under the search's posterior.
    confirmed : bool
        Whether the search tried all tasks with this arm.
    default : Arm
        The arm that one takes without a search: the last layer of the last checkpoint.
    default_score, default_stderr : float or None
        Mean raw score of the default arm over the same tasks.
    default_scores : mapping
        Raw score and standard error of the default arm by task.
    differences : mapping
        By how much the recommended arm's score exceeds the default arm's, by task; see `Run.differences`.
    share : float
        Cost of the search as a share of the exhaustive sweep's cost.
    outlook : mapping
        Why the search ended, what more would buy, what the metrics contributed, and why the recommendation changed:
        sentences by label.
    code : str
        Python that loads the arm.
    """

    arm: Arm
    score: float | None
    stderr: float | None
    scores: Mapping[str, Mapping[str, float]]
    probability: float
    confirmed: bool
    default: Arm
    default_score: float | None
    default_stderr: float | None
    default_scores: Mapping[str, Mapping[str, float]]
    differences: Mapping[str, Difference]
    share: float
    outlook: Mapping[str, str]
    code: str

    @property
    def shared(self) -> tuple[str, ...]:
        """Tasks on which both arms were scored; the mean scores are taken over them."""
        return tuple(task for task in self.scores if task in self.default_scores)

    @property
    def gain(self) -> Difference | None:
        """Mean score above the default arm's; None if no task was scored with both."""
        return mean_difference(list(self.differences.values()))

    @property
    def difference(self) -> str:
        """How much better than the default arm this arm is, in a sentence."""
        if self.arm == self.default:
            return "None: the default arm is the best arm of the search."
        if self.gain is None:
            return "Unknown: the two arms have no scored task in common."
        return f"{apart(self.gain)}. {_verdict(self.gain.value, self.gain.stderr)}"

    @property
    def certainty(self) -> str:
        """What the probability of being best means, in a sentence."""
        unconfirmed = "" if self.confirmed else " The arm was not tried on all tasks."
        return (
            f"{probability(self.probability)} probability that no other arm is better on these tasks. This follows "
            f"from the search's statistical model of all arms, not from a test on fresh data.{unconfirmed}"
        )

    def _repr_html_(self) -> str:
        rows = {
            "mean score": number(self.score, self.stderr),
            f"default {self.default}": number(self.default_score, self.default_stderr),
            "difference": self.difference,
            "certainty": self.certainty,
            "cost": f"{percent(self.share)} of the exhaustive sweep's cost (assumed)",
            **self.outlook,
        }
        return card(f"Best arm: {self.arm}", rows, self.code)


def _verdict(gain: float, error: float) -> str:
    if abs(gain) <= NOISE * error:
        return "The difference is within the error: it is less than 2 standard errors."
    if gain < 0:
        return "The mean raw score is lower than the default's, because the search compared the tasks by its reward."
    errors = f" ({gain / error:.1f} standard errors)" if error else ""
    return f"The difference exceeds the error{errors}, but is somewhat optimistic: the same scores selected the arm."
