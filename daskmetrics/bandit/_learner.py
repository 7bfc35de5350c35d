"""The learner that a live search and a replay drive: it decides on cells and learns from scores, in any order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from daskmetrics.bandit._clock import Fleet
from daskmetrics.bandit._costs import Ledger
from daskmetrics.bandit._memory import Memory
from daskmetrics.bandit._policy import Choice, Policy, State, Why
from daskmetrics.bandit._problem import Outcome, Problem
from daskmetrics.bandit._recommend import WITHIN, Recommendation, confidence, margin_of, recommend
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Arm, Cell

Stage = Literal["baseline", "search", "confirm"]

BASELINE = 0.25  #: share of the budget that sweeping the baseline checkpoint's layers may take
CHECK = 8  #: decisions after which it is asked again whether the wanted confidence is reached


@dataclass(frozen=True)
class Budget:
    """What a search may spend; the narrowest of these ends it.

    Attributes
    ----------
    share : float or None
        Of the exhaustive cost, in (0, 1].
    cost : float or None
        In the problem's unit, for instance GPU seconds.
    cells : int or None
        Cells asked for.

    Raises
    ------
    ConfigError
        If none is given or one is out of range.
    """

    share: float | None = None
    cost: float | None = None
    cells: int | None = None

    def __post_init__(self) -> None:
        given = [one for one in (self.share, self.cost, self.cells) if one is not None]
        if not given or not min(given) > 0 or (self.share or 0) > 1:
            raise ConfigError(
                f"A search needs a budget: a share in (0, 1], a cost or a number of cells above 0; got {self}."
            )

    def within(self, exhaustive: float) -> float:
        """The budget as a cost, at most the exhaustive one."""
        share = exhaustive if self.share is None else self.share * exhaustive
        return min(share, exhaustive if self.cost is None else self.cost, exhaustive)


@dataclass(frozen=True)
class Pick:
    """A decision: the cell to pay for, at which stage, its cost (shared encodings counted once) and the reason.

    ``known`` is the number of outcomes that it was taken on.
    """

    index: int
    cell: Cell
    stage: Stage
    cost: float
    why: Why = field(default_factory=dict)
    known: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; `from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Pick:
        """The inverse of `as_dict`."""
        cell = Cell(Arm(**plain["cell"]["arm"]), plain["cell"]["task"])
        return cls(plain["index"], cell, plain["stage"], plain["cost"], dict(plain["why"]), plain.get("known", 0))


class Campaign:
    """A search as a sequence of decisions.

    Three stages: (1) ``baseline``: where the reward is ``zscore``, all layers of the baseline checkpoint on one task
    after the other, cheapest first, as far as a quarter of the budget goes; the other tasks borrow their scale.
    (2) ``search`` follows the policy until it is content, the wanted confidence is reached, or the budget is used, less
    what confirming the leader will cost (if that is no more than a tenth of it). (3) ``confirm`` measures the cells
    that the leader lacks, and again if the lead changes, and then those of the default arm, as far as the budget goes.

    Decision i is taken on those outcomes that would be there if ``window`` workers had taken on the earlier ones in
    turn and every cell had taken as long as it costs (`fleet`), the others being pending, whatever has arrived; so the
    picks are a pure function of the problem, the seed, the window and the outcomes. Only where that leaves nothing to
    decide are further outcomes taken in, one by one in the order of their assumed ends, until there is.

    Parameters
    ----------
    problem : Problem
    policy : Policy
    budget : float or Budget
        A number is the share of the exhaustive cost, in (0, 1].
    window : int
        Decisions that may be open at once, best the number of workers; 1 waits for each outcome.
    seed : int
    decided : sequence of Pick
        Decisions of an interrupted search. They are taken over without asking the policy; ``open`` then lists them
        until they are told.
    confidence : float or None
        Stop as soon as the recommended arm is within ``within`` of the best with this probability.
    within : float
        Share of the best arm's mean score.
    free_running : bool
        Decide on every outcome that has arrived. Quicker with stragglers about, and no longer reproducible.

    Raises
    ------
    ConfigError
        If the budget or the window is out of range.
    DataError
        If ``decided`` does not fit the problem.

    Examples
    --------
    >>> from daskmetrics.core.names import Checkpoint, Suite
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
        budget: float | Budget,
        window: int,
        seed: int,
        decided: Sequence[Pick] = (),
        confidence: float | None = None,
        within: float = WITHIN,
        free_running: bool = False,
    ) -> None:
        allowed = budget if isinstance(budget, Budget) else Budget(share=budget)
        if window < 1:
            raise ConfigError(f"A search needs a window of 1 or more decisions, got {window}.")
        if confidence is not None and not 0 < confidence < 1:
            raise ConfigError(f"A wanted confidence lies between 0 and 1, got {confidence}.")
        self.problem, self.seed, self.window = problem, seed, window
        self.budget = allowed.within(problem.exhaustive_cost)  # from here on in units of cost
        self.confidence, self.within, self.free_running = confidence, within, free_running
        self._cells_left = math.inf if allowed.cells is None else allowed.cells
        self._policy = policy
        self._ledger, self._fleet = Ledger(problem), Fleet(window)
        # decisions lag behind what is looked at, and how sure they are is judged now and then
        self._memory, self._looking, self._judging = Memory(problem), Memory(problem), Memory(problem)
        self._picks: list[Pick] = []
        self._cells: list[tuple[int, int]] = []  # of the picks, as indices
        self._told: dict[int, Outcome] = {}  # in the order of arrival
        self._arrived = 0  # of those to be known, which only grow: how many of the first were told
        self._baseline = _baseline(problem, BASELINE * self.budget)
        self._sure: dict[int, bool] = {}  # by number of outcomes: whether the wanted confidence was reached
        self._fruitless = -1  # number of outcomes that are known to leave nothing to decide
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
        return tuple(pick for pick in self._picks if pick.index not in self._told)

    @property
    def spent(self) -> float:
        """Cost of all decisions so far, open and failed ones included."""
        return self._ledger.spent

    @property
    def done(self) -> bool:
        """Whether everything was told and nothing is left to decide."""
        return not self.open and self._next() is None

    @property
    def state(self) -> State:
        """All outcomes told, other decisions pending."""
        return self._state(self.order, self._looking)

    def ask(self, n: int) -> list[Pick]:
        """Up to n new decisions; fewer, or none, while they must wait for outcomes."""
        new: list[Pick] = []
        while len(new) < n and (found := self._next()) is not None:
            new.append(self._commit(*found, self._fruitless))
        return new

    def tell(self, index: int, outcome: Outcome) -> None:
        """What became of decision ``index``; in any order, each once."""
        if not 0 <= index < len(self._picks) or index in self._told:
            raise DataError(f"Decision {index} was told already or never made; there are {len(self._picks)} decisions.")
        self._told[index] = outcome
        if self.free_running:
            self._fleet.free(index)
        self._take_in()

    def forget_looks(self) -> None:
        """Work out the belief anew, so that to the last bit it hangs on the outcomes alone and not on earlier looks."""
        self._looking = Memory(self.problem)

    def recommendation(self) -> Recommendation:
        """The best arm by all outcomes told; final once the campaign is `done`.

        Raises
        ------
        DaskmetricsError
            If not one cell was measured.
        """
        return recommend(self.state, self.budget, self.spent, self.within)

    @property
    def order(self) -> list[int]:
        """Decisions whose outcome was told, in the order in which outcomes are taken in."""
        return list(self._told) if self.free_running else [i for i in self._fleet.order if i in self._told]

    def _next(self) -> tuple[Stage, Choice] | None:
        """The next decision, if it can be taken on what is known."""
        while self._found is None:
            known = self._known
            if not self._may_decide(known):
                return None
            if self._fruitless != len(known):
                self._found, self._fruitless = self._decide(known), len(known)
            elif self.free_running or not self._fleet.wait():
                return None
        return self._found

    def _may_decide(self, known: Sequence[int]) -> bool:
        """Whether one more decision may be open, and all outcomes that it rests on are there."""
        self._count_arrived(known)
        return len(self._picks) - len(known) < self.window and self._arrived >= len(known)

    @property
    def _known(self) -> list[int]:
        """Decisions whose outcomes the next one rests on; they only grow in number."""
        return list(self._told) if self.free_running else self._fleet.over

    def _count_arrived(self, known: Sequence[int]) -> None:
        while self._arrived < len(known) and known[self._arrived] in self._told:
            self._arrived += 1

    def _take_in(self) -> None:
        """Learn from what later decisions rest on for certain, so that none of them has much to learn at once."""
        known = self._known
        self._count_arrived(known)
        if self._memory.is_used or self._baseline:  # other policies look at no posterior
            self._learn(self._memory, known[: self._arrived])
        if self._judging.is_used:  # it is not judged on fewer than these
            self._learn(self._judging, known[: min(self._arrived, max(self._sure, default=0) + CHECK)])

    def _learn(self, memory: Memory, known: Sequence[int]) -> None:
        memory.take_in([self._cells[i] for i in known], [self._told[i] for i in known])

    def _decide(self, known: Sequence[int]) -> tuple[Stage, Choice] | None:
        """The next decision on the ``known`` outcomes: a pure function of them and of the decisions so far."""
        if len(self._picks) >= self._cells_left:
            return None
        if len(self._picks) < len(self._baseline):
            return "baseline", Choice(*self._baseline[len(self._picks)])
        state = self._state(known)
        if self._is_sure(known, state):
            return None
        if choice := self._policy(state):
            return "search", choice
        if choice := _confirmation(state):
            return "confirm", choice
        return None

    def _is_sure(self, known: Sequence[int], state: State) -> bool:
        """Whether the wanted confidence was reached, by the latest number of outcomes at which that is looked at."""
        count = len(known) // CHECK * CHECK
        if self.confidence is None or not count:
            return False
        if count not in self._sure:
            looked = state if count == len(known) else self._state(known[:count], self._judging)
            self._sure[count] = bool(len(looked.seen)) and self._probability(looked) >= self.confidence
        return self._sure[count]

    def _probability(self, state: State) -> float:
        belief, leader = state.belief.without_pending(), state.leader
        margin = margin_of(belief, leader, state.seen, self.within)
        return confidence(belief, leader, margin, self.seed, state.usable).within

    def _state(self, known: Sequence[int], memory: Memory | None = None) -> State:
        whole = self.budget >= self.problem.exhaustive_cost
        return State(
            problem=self.problem,
            cells=self._in_order(known),
            outcomes=[self._told[i] for i in known],
            paid=self._ledger.paid,
            cost=self._ledger.cost(self._fleet.held),
            rest=math.inf if whole else self.budget - self.spent,
            seed=self.seed,
            budget=math.inf if whole else self.budget,
            memory=memory or self._memory,
        )

    def _in_order(self, known: Sequence[int]) -> list[tuple[int, int]]:
        """Cells, those with a known outcome first."""
        late = np.ones(len(self._cells), dtype=bool)
        late[list(known)] = False
        return [self._cells[i] for i in (*known, *np.flatnonzero(late).tolist())]

    def _commit(self, stage: Stage, choice: Choice, known: int) -> Pick:
        needs_model = self._ledger.needs_model(choice.arm, choice.task)
        cost = self._ledger.charge(choice.arm, choice.task, self._fleet.held)
        checkpoint = int(self.problem.checkpoint_index[choice.arm])
        self._fleet.give(checkpoint, math.inf if self.free_running else cost, needs_model)
        cell = self.problem.cell(choice.arm, choice.task)
        pick = Pick(len(self._picks), cell, stage, cost, choice.why, known)
        self._picks.append(pick)
        self._cells.append((choice.arm, choice.task))
        self._fruitless, self._found = -1, None
        return pick

    def _take_over(self, pick: Pick) -> None:
        if pick.index != len(self._picks):
            raise DataError(f"Decision {len(self._picks)} is missing: the next one that was recorded is {pick.index}.")
        choice = Choice(*self.problem.locate(pick.cell), pick.why)
        while not self.free_running and len(self._fleet.over) < pick.known and self._fleet.wait():
            pass  # until as many have ended as were known then
        self._commit(pick.stage, choice, pick.known)


def _confirmation(state: State) -> Choice | None:
    """The cheapest cell that the leader lacks, or else the default arm, if all that it lacks can be paid."""
    wanted = state.problem.wanted
    for arm in (state.leader, state.problem.default_arm):
        missing = np.flatnonzero(~state.paid[arm] & wanted)
        if len(missing) and state.usable[arm]:
            affordable = state.cost[arm, wanted].sum() <= state.rest + 1e-9 * state.problem.exhaustive_cost
            # dear cells come last: they are spared if the lead changes meanwhile
            return Choice(arm, int(missing[np.argmin(state.cost[arm, missing])])) if affordable else None
    return None


def _baseline(problem: Problem, allowance: float) -> list[tuple[int, int]]:
    """Cells of the first stage, cheapest task first, one task's layers together since they share an encoding."""
    if problem.reward != "zscore":
        return []
    arms = problem.baseline_arms
    whole = problem.encode_cost[arms[-1]] + problem.score_cost[arms].sum(axis=0)
    order = np.argsort(whole, kind="stable")
    order = order[problem.wanted[order]]
    count = int(np.searchsorted(np.cumsum(whole[order]), allowance * (1 + 1e-9), side="right"))
    return [(int(arm), int(task)) for task in order[:count] for arm in arms]
