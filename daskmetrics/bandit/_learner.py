"""The learner of a live search and of a simulated one: it decides on cells and learns from scores,
in any order.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from daskmetrics.bandit._coverage import audit, cover, covering_costs, is_audited, missing_looks
from daskmetrics.bandit._errors import OwnErrors
from daskmetrics.bandit._state import Choice, Policy, State, Why
from daskmetrics.bandit.costs import AssumedWorkers, PaidCosts
from daskmetrics.bandit.model import IncrementalPosterior
from daskmetrics.bandit.problem import ROUNDING, Observations, Outcome, Problem
from daskmetrics.bandit.recommend import WITHIN, is_near, recommend
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.text import plural
from daskmetrics.domain.names import Cell
from daskmetrics.domain.recommendation import Recommendation
from daskmetrics.domain.results import Outcomes

Stage = Literal["cover", "search", "confirm"]
Ending = Literal["sure", "within", "budget", "cells", "complete", "stopped"]


@dataclass(frozen=True)
class Budget:
    """What a search may spend; the narrowest limit ends it.

    Attributes
    ----------
    share : float or None
        Share of the exhaustive cost, in (0, 1].
    cost : float or None
        Cost in the problem's unit, for instance GPU seconds.
    cells : int or None
        Number of cells.

    Raises
    ------
    ConfigError
        If no limit is given or one is out of range.
    """

    share: float | None = None
    cost: float | None = None
    cells: int | None = None

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.share, self.cost, self.cells) if limit is not None]
        if not limits or not min(limits) > 0 or (self.share or 0) > 1:
            raise ConfigError(
                "A search needs a budget: a share in (0, 1], a cost or a number of cells above 0; "
                f"got {self}."
            )

    def within(self, exhaustive: float) -> float:
        """The budget as a cost, at most the exhaustive one."""
        return min(exhaustive * (self.share or 1.0), self.cost or exhaustive)

    def require_cover(self, problem: Problem) -> None:
        """Check that the budget pays for every model on every kind of task.

        Raises
        ------
        ConfigError
            If it does not; the message names a budget that does.
        """
        costs = covering_costs(problem)
        exhaustive = problem.exhaustive_cost
        allowed = self.within(exhaustive) / exhaustive
        needed = least_budget(problem) / exhaustive
        models = len(problem.models)
        look = "a single score, with its encoding"
        if models > 1:
            look = (
                f"a first score of each of {models} models on each kind of task, without which no "
                "model can be ruled out"
            )
        if allowed < needed * (1 - ROUNDING):
            enough = min(1.0, math.ceil(1000 * needed) / 1000)
            raise ConfigError(
                f"The search may spend {allowed:.3g} of the cost of every score, but {look}, takes "
                f"{needed:.3g}. Allow that with a budget of {enough:g} (search.budget={enough:g}); "
                "search.budget=auto lets a run choose its budget."
            )
        if self.cells is not None and self.cells < costs.size:
            raise ConfigError(
                f"The search may compute {plural(self.cells, 'score')}, but {look}, takes "
                f"{costs.size}: set search.cells={costs.size} or more."
            )


def least_budget(problem: Problem) -> float:
    """Cost of scoring each model on each kind of task once.

    Each score has an encoding and a load of its own.
    """
    return min(float(covering_costs(problem).sum()), problem.exhaustive_cost)


@dataclass(frozen=True)
class Pick:
    """A decision: the cell to pay for, its stage, cost and reason.

    The reason has a word, ``because``, and what the policy adds. An encoding that exists is free.
    ``known`` is the number of outcomes on which the decision is based.
    """

    index: int
    cell: Cell
    stage: Stage
    cost: float
    why: Why
    known: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The decision as plain JSON values."""
        return asdict(self)


class Learner:
    """A search as a sequence of decisions: `ask` for cells, `tell` their outcomes.

    A search has three stages. (1) ``cover``: the cheapest score of each model, before any
    comparison. (2) ``search``: the policy chooses until no cell is worth its cost, next to nothing
    is left to gain, or the budget is spent, less what is kept for a score of each model on each
    kind of task, and for confirming the leader (if that is at most a tenth of the budget). Then
    the audit and these scores are paid for, as ``cover``, and the policy is asked again. (3)
    ``confirm``: the missing cells of the leader, of a new leader if it changes, and then of the
    arm that it is compared with, as far as the budget allows. A budget that pays for every cell is
    spent on every cell, the cheapest first.

    Decision i is based on the outcomes that would have arrived if ``window`` workers had processed
    the earlier decisions and each cell had taken as long as it costs; all other outcomes count as
    pending, even if they have arrived. So the decisions are a pure function of the problem, the
    seed, the window and the outcomes. If these outcomes leave nothing to decide, further outcomes
    are added one by one, in the order of their assumed ends.

    Parameters
    ----------
    problem : Problem
    policy : Policy
    budget : float or Budget
        A number is a share of the exhaustive cost, in (0, 1].
    window : int
        Number of decisions that may be open at once, ideally the number of workers; 1 waits for
        each outcome.
    seed : int
    decided : sequence of Pick
        Decisions of an interrupted search. They are repeated without calling the policy, and `open`
        lists them until their outcomes are reported.
    within : float
        The search ends once no more than this share of the score is expected to be gained, see
        `is_near`. With 0 it goes on.

    Raises
    ------
    ConfigError
        If the budget or the window is out of range, or if the budget does not pay for the stage
        ``cover``.
    DataError
        If ``decided`` does not fit the problem.

    Examples
    --------
    >>> from daskmetrics.domain.names import Suite
    >>> from daskmetrics.bandit import arm_features, policy_named
    >>> suite = Suite("m", ("step0", "step1", "step2"), (0, 1), 1)
    >>> cost = np.ones((6, 2))
    >>> problem = Problem(suite.arms(), ("s", "t"), arm_features([suite]), cost, cost)
    >>> learner = Learner(problem, policy_named("race"), budget=0.8, window=2, seed=0)
    >>> while not learner.done:
    ...     for pick in learner.ask(2):
    ...         learner.tell(pick.index, Outcome(0.5 + 0.1 * (pick.cell.arm.layer == 0), 0.01))
    >>> learner.recommendation().arm.layer
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
        within: float = WITHIN,
    ) -> None:
        if not isinstance(budget, Budget):
            budget = Budget(share=budget)
        if window < 1:
            raise ConfigError(f"A search needs a window of at least 1 decision, got {window}.")
        self.problem = problem
        self.seed = seed
        self.window = window
        self.budget = budget.within(problem.exhaustive_cost)  # from here on in units of cost
        if not decided:
            budget.require_cover(problem)
        self.within = within
        self._is_exhaustive = budget.share == 1 and self.budget >= problem.exhaustive_cost
        self._max_cells = budget.cells or math.inf
        self._policy = policy
        self._costs = PaidCosts(problem)
        self._workers = AssumedWorkers(window)
        # two sets of outcomes grow at different times: those of decisions and those of `state`
        self._deciding = IncrementalPosterior(problem)
        self._reporting = IncrementalPosterior(problem)
        self._picks: list[Pick] = []
        # a row for each pick; its score counts once it is reported
        size = problem.score_cost.size
        arms, tasks = np.zeros((2, size), dtype=np.intp)
        self._results = Observations(arms, tasks, np.full(size, math.nan), np.zeros(size))
        # decisions count the part of an error alone that other arms on the same items do not share
        self._scores = replace(self._results, stderr=np.zeros(size))
        self._own_errors = OwnErrors()
        self._of_items: dict[int, Outcomes | None] = {}  # of reported decisions
        self._reported: set[int] = set()
        # of the outcomes that the next decision needs, how many of the first ones have arrived
        self._arrived = 0
        self._look_costs = covering_costs(problem)
        self._decided_on = -1  # number of outcomes that the next decision was computed from
        self._choice: tuple[Stage, Choice] | None = None
        for pick in decided:
            self._repeat(pick)

    @property
    def picks(self) -> tuple[Pick, ...]:
        """All decisions so far."""
        return tuple(self._picks)

    @property
    def open(self) -> tuple[Pick, ...]:
        """Decisions without an outcome."""
        return tuple(pick for pick in self._picks if pick.index not in self._reported)

    @property
    def spent(self) -> float:
        """Cost of all decisions so far, open and failed ones included."""
        return self._costs.spent

    @property
    def done(self) -> bool:
        """Whether every decision has an outcome and nothing is left to decide."""
        return not self.open and self._next() is None

    @property
    def state(self) -> State:
        """The state with all outcomes so far; other decisions are pending."""
        return self._state(self.outcome_order, self._results, self._reporting)

    def ask(self, n: int) -> list[Pick]:
        """Up to n new decisions; fewer if they must wait for outcomes."""
        new: list[Pick] = []
        while len(new) < n and (following := self._next()) is not None:
            new.append(self._commit(*following, self._decided_on))
        return new

    def tell(self, index: int, outcome: Outcome) -> None:
        """Report the outcome of decision ``index``; in any order, each once.

        Raises
        ------
        DataError
            If there is no such decision, or if it already has an outcome.
        """
        if not 0 <= index < len(self._picks) or index in self._reported:
            raise DataError(
                f"Decision {index} already has an outcome or does not exist; there are "
                f"{len(self._picks)} decisions."
            )
        if outcome.score is not None:
            self._results.score[index] = outcome.score
        self._results.stderr[index] = outcome.stderr
        self._of_items[index] = outcome.of_items
        self._reported.add(index)
        if self._deciding.is_used:  # some policies use no posterior
            # outcomes that later decisions certainly need are added now, so that no decision has
            # much to add
            needed = self._needed()
            arrived = np.array(needed[: self._arrived], np.intp)
            self._deciding.update(self._scores.take(arrived))

    def rebuild_posterior(self) -> None:
        """Compute the posterior of `state` again.

        Its last bits otherwise depend on when `state` was read.
        """
        self._reporting = IncrementalPosterior(self.problem)

    def recommendation(self) -> Recommendation:
        """The best arm given all outcomes so far; final once `done`.

        Raises
        ------
        UndefinedError
            If no cell was measured.
        """
        decided = self._deciding_state(self._needed())
        return recommend(self.state, decided, self.budget, self.spent)

    @property
    def ending(self) -> Ending:
        """Why nothing is left to decide; ``stopped`` if something is.

        ``within``: no more than ``within`` is expected to be gained; ``sure``: the policy
        found no cell worth its cost; ``budget``: it would have gone on with a larger budget;
        ``cells``: the largest number of cells; ``complete``: every cell was paid for; ``stopped``:
        it was ended from outside.
        """
        if self._next() is not None:
            return "stopped"
        needed = self._needed()
        state = self._deciding_state(needed)
        if state.paid.all():
            return "complete"
        if len(self._picks) >= self._max_cells:
            return "cells"
        if self._is_near(state) and is_audited(state):
            return "within"
        if self._would_go_on(state):
            return "budget"
        return "sure"

    @property
    def outcome_order(self) -> list[int]:
        """Decisions with an outcome, in the order in which they count."""
        return [i for i in self._workers.order if i in self._reported]

    def _next(self) -> tuple[Stage, Choice] | None:
        """The next decision; None if it must wait, or the search is over."""
        while self._choice is None:
            needed = self._needed()
            open_picks = len(self._picks) - len(needed)
            if self._arrived < len(needed) or open_picks >= self.window:
                return None
            if self._decided_on != len(needed):
                self._choice = self._decide(needed)
                self._decided_on = len(needed)
            elif not self._workers.advance():
                return None
        return self._choice

    def _needed(self) -> list[int]:
        """Decisions on whose outcomes the next is based; counts the arrived ones."""
        needed = self._workers.finished  # only grows
        while self._arrived < len(needed) and needed[self._arrived] in self._reported:
            index = needed[self._arrived]
            task, stderr = int(self._results.task[index]), float(self._results.stderr[index])
            own_error = self._own_errors.add(task, stderr, self._of_items.pop(index))
            self._scores.stderr[index] = own_error
            self._arrived += 1
        return needed

    def _decide(self, finished: Sequence[int]) -> tuple[Stage, Choice] | None:
        """Decide by the finished outcomes; pure, so that a search can be repeated."""
        if len(self._picks) >= self._max_cells:
            return None
        state = self._deciding_state(finished)
        looks_of_new_models, looks = missing_looks(state)
        # what the search may not spend yet: the cost of the looks that are still missing
        kept = float(self._look_costs[looks].sum())
        if choice := cover(state, looks_of_new_models, kept):
            return "cover", choice
        searching = replace(state, remaining=state.remaining - kept)
        near = self._is_near(searching)
        if not near and (choice := _chosen(self._policy, searching)):
            return "search", choice
        # a search that ends because nothing is left to pay with is not sure, and needs no audit
        if (near or not self._would_go_on(state)) and (choice := audit(searching)):
            return "cover", choice
        if choice := cover(state, looks, kept):
            return "cover", choice
        if choice := _confirmation(state, with_default=not near):
            return "confirm", choice
        if self._is_exhaustive and (choice := _cheapest(state)):
            return "search", choice
        return None

    def _would_go_on(self, state: State) -> bool:
        """Whether the policy would choose a cell with any budget."""
        unlimited = replace(state, remaining=math.inf, budget=math.inf)
        return _chosen(self._policy, unlimited) is not None

    def _is_near(self, state: State) -> bool:
        return self.within > 0 and not self._is_exhaustive and is_near(state, self.within)

    def _deciding_state(self, finished: Sequence[int]) -> State:
        return self._state(finished, self._scores, self._deciding)

    def _state(
        self, finished: Sequence[int], results: Observations, cache: IncrementalPosterior
    ) -> State:
        budget = self.budget
        if budget >= self.problem.exhaustive_cost:
            budget = math.inf
        is_pending = np.ones(len(self._picks), dtype=bool)
        is_pending[list(finished)] = False
        pending = results.take(np.flatnonzero(is_pending))
        return State(
            problem=self.problem,
            finished=results.take(np.array(finished, dtype=np.intp)),
            pending=np.column_stack([pending.arm, pending.task]),
            paid=self._costs.paid,
            cost=self._costs.cost(self._workers.held),
            remaining=budget - self.spent,
            seed=self.seed,
            budget=budget,
            most_cells=self._max_cells,
            cache=cache,
        )

    def _commit(self, stage: Stage, choice: Choice, outcome_count: int) -> Pick:
        needs_encoding = self._costs.needs_encoding(choice.arm, choice.task)
        cost = self._costs.charge(choice.arm, choice.task, self._workers.held)
        checkpoint = int(self.problem.checkpoint_index[choice.arm])
        self._workers.assign(checkpoint, cost, needs_encoding)
        cell = self.problem.cell(choice.arm, choice.task)
        pick = Pick(
            index=len(self._picks),
            cell=cell,
            stage=stage,
            cost=cost,
            why={**choice.why, "because": str(choice.why.get("because", stage))},
            known=outcome_count,
        )
        self._picks.append(pick)
        self._results.arm[pick.index] = choice.arm
        self._results.task[pick.index] = choice.task
        self._decided_on = -1
        self._choice = None
        return pick

    def _repeat(self, pick: Pick) -> None:
        if pick.index != len(self._picks):
            raise DataError(
                f"Decision {len(self._picks)} is missing: the next recorded decision is"
                f" {pick.index}."
            )
        choice = Choice(*self.problem.locate(pick.cell), pick.why)
        while len(self._workers.finished) < pick.known and self._workers.advance():
            pass  # until as many decisions have ended as were known then
        self._commit(pick.stage, choice, pick.known)


def _chosen(policy: Policy, state: State) -> Choice | None:
    try:
        choice = policy(state)
    except Exception as error:  # a policy may be any function
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"The policy failed with {type(error).__name__} in {frame.filename}, line "
            f"{frame.lineno}. It must be a function of a State that returns a Choice or None."
        ) from error
    if not isinstance(choice, Choice | None):
        raise ConfigError(
            f"The policy must return a Choice or None, but returned a {type(choice).__name__}."
        )
    return choice


def _confirmation(state: State, with_default: bool) -> Choice | None:
    needed = state.problem.in_objective
    # first the finalist, then what it is compared with
    default = int(state.problem.default_arms[state.recommended])
    for arm in (state.finalist, default) if with_default else (state.finalist,):
        missing = np.flatnonzero(~state.paid[arm] & needed)
        if len(missing) and state.usable[arm]:
            if not state.is_confirmable[arm]:
                return None
            # expensive cells come last: they are saved if the leader changes before
            cheapest = np.argmin(state.cost[arm, missing])
            return Choice(arm, int(missing[cheapest]))
    return None


def _cheapest(state: State) -> Choice | None:
    if not state.open.any():
        return None
    cost = np.where(state.open, state.cost, np.inf)
    arm, task = divmod(int(cost.argmin()), len(state.problem.tasks))
    return Choice(arm, task, {"spend": "although no rival is worth its cost"})
