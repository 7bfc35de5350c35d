"""The learner that a live search and a replay drive: it decides on cells and learns from scores, in any order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from daskmetrics.arms import Arm, Cell
from daskmetrics.bandit.memory import Memory
from daskmetrics.bandit.policy import Choice, Policy, State, Why
from daskmetrics.bandit.problem import Ledger, Outcome, Problem
from daskmetrics.bandit.recommendation import Recommendation, recommend
from daskmetrics.errors import ConfigError, DataError

Stage = Literal["baseline", "search", "confirm"]

#: Arms that may be confirmed after the search. A confirmed arm can turn out worse than hoped and hand the lead on; this
#: ends the chain, and with it what may be spent beyond the budget.
CONFIRMATIONS = 3


@dataclass(frozen=True)
class Pick:
    """A decision: the cell to pay for, at which stage, its cost (shared encodings counted once) and the reason."""

    index: int
    cell: Cell
    stage: Stage
    cost: float
    why: Why = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Pick:
        """The inverse of `as_dict`."""
        cell = Cell(Arm(**plain["cell"]["arm"]), plain["cell"]["task"])
        return cls(plain["index"], cell, plain["stage"], plain["cost"], dict(plain["why"]))


class Campaign:
    """A search as a sequence of decisions.

    Three stages: (1) ``baseline`` measures what the reward needs: for ``zscore`` all layers of the baseline checkpoint,
    for ``mean`` the default arm alone, on all tasks; (2) ``search`` follows the policy until it is content or the
    budget, less what confirming the present leader would cost, is used; (3) ``confirm`` measures the cells that the
    leader lacks, and again if the lead changes.

    Decision i is taken on the outcomes of decisions 0 ... i - window exactly, the later ones being pending, however
    many of them have arrived; so the picks are a pure function of the problem, the seed, the window and the outcomes.
    Only where that leaves nothing to decide are further outcomes taken in, one by one in the order of decisions, until
    there is.

    Parameters
    ----------
    problem : Problem
    policy : Policy
    budget : float
        Share of the exhaustive cost, in (0, 1]. The baseline is measured in any case; confirming more than one leader
        may overspend by at most two arms.
    window : int
        Decisions that may be open at once; 1 waits for each outcome.
    seed : int
    decided : sequence of Pick
        Decisions of an interrupted search. They are taken over without asking the policy; ``open`` then lists them
        until they are told.

    Raises
    ------
    ConfigError
        If the budget or the window is out of range.
    DataError
        If ``decided`` does not fit the problem.

    Examples
    --------
    >>> from daskmetrics.arms import Checkpoint, Suite
    >>> from daskmetrics.bandit import arm_features, policy_named
    >>> suite = Suite("m", ("step0", "step1", "step2"), (0, 1), 1)
    >>> cost = np.ones((6, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost, Checkpoint("m", "step2"), "mean")
    >>> campaign = Campaign(problem, policy_named("race"), budget=0.8, window=2, seed=0)
    >>> while not campaign.done:
    ...     for pick in campaign.ask(2):
    ...         campaign.tell(pick.index, Outcome(0.5 + 0.1 * (pick.cell.arm.layer == 0), 0.01))
    >>> campaign.recommendation().arm.layer
    0
    """

    def __init__(
        self,
        problem: Problem,
        policy: Policy,
        *,
        budget: float,
        window: int,
        seed: int,
        decided: Sequence[Pick] = (),
    ) -> None:
        if not 0 < budget <= 1 or window < 1:
            raise ConfigError(
                f"A search needs a budget in (0, 1] and a window of 1 or more, got {budget} and {window}."
            )
        self.problem, self.seed, self.window = problem, seed, window
        self.budget = budget * problem.exhaustive_cost  # from here on in units of cost
        self._policy = policy
        self._ledger = Ledger(problem)
        self._memory = Memory(problem)
        self._picks: list[Pick] = []
        self._cells: list[tuple[int, int]] = []  # of the picks, as indices
        self._outcomes: list[Outcome] = []  # without gaps: of the first picks
        self._early: dict[int, Outcome] = {}  # those that overtook an earlier one
        self._baseline = _baseline(problem)
        self._fruitless = 0  # numbers of outcomes below this are known to leave nothing to decide
        self._found: tuple[Stage, Choice] | None = None
        for pick in decided:
            self._take_over(pick)

    @property
    def picks(self) -> tuple[Pick, ...]:
        """All decisions so far."""
        return tuple(self._picks)

    @property
    def open(self) -> tuple[Pick, ...]:
        """Decisions whose outcome was not told."""
        return tuple(pick for pick in self._picks[len(self._outcomes) :] if pick.index not in self._early)

    @property
    def spent(self) -> float:
        """Cost of all decisions so far, open and failed ones included."""
        return self._ledger.spent

    @property
    def done(self) -> bool:
        """Whether everything was told and nothing is left to decide."""
        return len(self._outcomes) == len(self._picks) and self._next() is None

    @property
    def state(self) -> State:
        """All outcomes told without a gap, later decisions pending."""
        return self._state(len(self._outcomes))

    def ask(self, n: int) -> list[Pick]:
        """Up to n new decisions; fewer, or none, while they must wait for outcomes."""
        new: list[Pick] = []
        while len(new) < n and (found := self._next()) is not None:
            new.append(self._commit(*found))
        return new

    def tell(self, index: int, outcome: Outcome) -> None:
        """What became of decision ``index``; in any order, each once."""
        if not len(self._outcomes) <= index < len(self._picks) or index in self._early:
            raise DataError(f"Decision {index} was told already or never made; there are {len(self._picks)} decisions.")
        self._early[index] = outcome
        while len(self._outcomes) in self._early:
            self._outcomes.append(self._early.pop(len(self._outcomes)))

    def recommendation(self) -> Recommendation:
        """The best arm by all outcomes told without a gap; final once the campaign is `done`.

        Raises
        ------
        DaskmetricsError
            If not one cell was measured.
        """
        return recommend(self.state, self.budget, self.spent, final=self.done)

    def _next(self) -> tuple[Stage, Choice] | None:
        """The next decision, if it can be taken on what is known."""
        first = max(0, len(self._picks) - self.window + 1, self._fruitless)
        for known in range(first, len(self._outcomes) + 1):
            if self._found is not None:
                break
            self._found = self._decide(known)
            self._fruitless = known + 1
        return self._found

    def _decide(self, known: int) -> tuple[Stage, Choice] | None:
        """The next decision on the first ``known`` outcomes: a pure function of them and of the decisions so far."""
        if len(self._picks) < len(self._baseline):
            return "baseline", Choice(*self._baseline[len(self._picks)])
        state = self._state(known)
        if choice := self._policy(state):
            return "search", choice
        if choice := self._confirmation(state):
            return "confirm", choice
        return None

    def _confirmation(self, state: State) -> Choice | None:
        """The leader's cheapest missing cell: dear ones are spared if the lead changes meanwhile."""
        confirmed = {pick.cell.arm for pick in self._picks if pick.stage == "confirm"}
        missing = np.flatnonzero(~state.paid[state.leader])
        another = self.problem.arms[state.leader] not in confirmed
        if not len(missing) or (another and len(confirmed) >= CONFIRMATIONS):
            return None
        return Choice(state.leader, int(missing[np.argmin(state.cost[state.leader, missing])]))

    def _state(self, known: int) -> State:
        return State(
            problem=self.problem,
            cells=self._cells[:],
            outcomes=self._outcomes[:known],
            paid=self._ledger.paid,
            cost=self._ledger.cost(),
            rest=self.budget - self.spent if self.budget < self.problem.exhaustive_cost else math.inf,
            seed=self.seed,
            memory=self._memory,
        )

    def _commit(self, stage: Stage, choice: Choice) -> Pick:
        cost = self._ledger.charge(choice.arm, choice.task)
        cell = self.problem.cell(choice.arm, choice.task)
        pick = Pick(len(self._picks), cell, stage, cost, choice.why)
        self._picks.append(pick)
        self._cells.append((choice.arm, choice.task))
        self._fruitless, self._found = 0, None
        return pick

    def _take_over(self, pick: Pick) -> None:
        if pick.index != len(self._picks):
            raise DataError(f"Decision {len(self._picks)} is missing: the next one that was recorded is {pick.index}.")
        self._commit(pick.stage, Choice(*self.problem.locate(pick.cell), pick.why))


def _baseline(problem: Problem) -> list[tuple[int, int]]:
    """Cells of the first stage, cheapest task first, one task's layers together since they share an encoding."""
    arms = problem.baseline_arms if problem.reward == "zscore" else problem.baseline_arms[-1:]
    whole = problem.encode_cost[arms[-1]] + problem.score_cost[arms].sum(axis=0)
    return [(int(arm), int(task)) for task in np.argsort(whole, kind="stable") for arm in arms]
