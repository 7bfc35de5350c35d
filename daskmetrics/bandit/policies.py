"""Policies: which cell to pay for next. Other packages add theirs by the entry point group
``daskmetrics.policies``.

``race``, the default, compares the leader with all arms that may still beat it, on the cells with
the most information per cost. Arms that beat the leader with negligible probability are excluded;
the others are its rivals. Stopping now has the expected loss E[max(0, rival - leader)]. The value
of a measurement is the variance of these differences that it removes, weighted by the losses,
divided by its cost. A measurement is a single cell or a duel: the missing cells of a rival and of
the leader on the same task. Duels are the reason to start a new task, since a single score of a new
task does not distinguish two arms.

So cheap tasks are scored first, and expensive ones only if the cheap ones leave a doubt. A cell is
cheap if its encoding exists or its checkpoint is loaded; the cost of a new encoding is shared by
the rivals of its checkpoint. Pending cells count as observed, so that the same information is not
paid for twice. A task with failed cells has less value, by the share that failed.

Where encoding costs nearly all, every layer that an encoding gives is scored before the next one is
paid for. These scores are all but free, and show where the model of the scores is wrong: an arm
that it has excluded would not be looked at otherwise. Where the number of scores is limited, a
score is what costs, and the rule does not hold.

Once no rival is likely to beat the leader, the leader, its nearest rivals and the best arm of every
other model are scored on every kind of task, and a few arms on each task that could decide
(`check_rivals`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points

import numpy as np

from daskmetrics.bandit._coverage import check_rivals, distances
from daskmetrics.bandit._state import Choice, Policy, State, Why
from daskmetrics.bandit.model import LEAST_SD, NOISE, Posterior
from daskmetrics.bandit.problem import Floats, Ints, Rows
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.user_code import load_object

__all__ = ["installed_policies", "policy_named", "policy_path", "race", "random", "sweep"]

#: once every rival beats the leader with a smaller probability, kinds that they lack are scored
UNLIKELY = 0.2
NEGLIGIBLE = 0.01  #: a rival that beats the leader with a smaller probability is excluded
#: rivals considered per decision: half have the greatest losses, the others are drawn by their
#: losses
RIVALS = 32


@dataclass(frozen=True, eq=False)
class Rivals(Rows):
    """Rivals of the leader (S,), and how likely and by how much they beat it.

    Index, probability of beating it, sd of the difference, and expected loss.
    """

    arms: Ints
    better: Floats
    spread: Floats
    loss: Floats


def race(state: State) -> Choice | None:
    """Choose the measurement with the most information per cost.

    None if there is no rival or no open cell.
    """
    choice = _encoded_cell(state)
    if choice:
        return choice
    leader = state.leader
    all_rivals = _rivals(state)
    if all_rivals.better.max(initial=0.0) <= UNLIKELY:
        choice = check_rivals(state)
        if choice:
            return choice
    if not len(all_rivals):
        return None
    drawn = _draw_rivals(all_rivals, state.random())
    value = _value_per_cost(state, drawn)
    if not value.max() > 0:
        return None
    # at random among values that differ by rounding
    best = np.flatnonzero(value >= value.max() * (1 - 1e-9))
    drawn_best = state.random().choice(best)
    is_duel, row, task = np.unravel_index(drawn_best, value.shape)
    arm = int(np.append(drawn.arms, leader)[row])
    if is_duel and state.open[leader, task]:
        arm = leader  # first: it serves every duel on this task
    why: Why = {
        "because": "rival",
        "leader": str(state.problem.arms[leader]),
        "rivals": float(len(all_rivals)),
        # the last bits depend on how the posterior was computed
        "loss": float(f"{all_rivals.loss.max():.6g}"),
    }
    return Choice(arm, int(task), why)


def random(state: State) -> Choice | None:
    """Choose uniformly among the open cells."""
    cells = np.argwhere(state.open)
    if not len(cells):
        return None
    arm, task = state.random().choice(cells).tolist()
    return Choice(arm, task)


def sweep(state: State) -> Choice | None:
    """Choose the first open cell: arm by arm, task by task."""
    cell = int(np.argmax(state.open))
    arm, task = divmod(cell, len(state.problem.tasks))
    if not state.open[arm, task]:
        return None
    return Choice(arm, task)


GROUP = "daskmetrics.policies"
BUILT_IN: Mapping[str, Policy] = {"race": race, "random": random, "sweep": sweep}


def installed_policies() -> Mapping[str, Policy]:
    """All installed policies by name.

    An entry point cannot replace a built-in policy.

    Examples
    --------
    >>> {"race", "random", "sweep"} <= set(installed_policies())
    True
    """
    of_others = {
        point.name: load_object(f"Policy '{point.name}'", point.value)
        for point in entry_points(group=GROUP)
    }
    return of_others | dict(BUILT_IN)


def policy_named(name: str) -> Policy:
    """The policy with a name, or at a path such as ``mypackage.search:ask``.

    Raises
    ------
    ConfigError
        If the name is unknown (the message names the nearest valid one), or if there is no function
        at the path.
    """
    if ":" not in name:
        policies = installed_policies()
        if name not in policies:
            raise unknown("policy", name, policies)
        return policies[name]
    policy = load_object(f"Policy '{name}'", name)
    if not callable(policy):
        raise ConfigError(
            f"Policy '{name}' must be a function of a State, but is a {type(policy).__name__}."
        )
    return policy  # type: ignore[no-any-return]


def policy_path(policy: Policy) -> str:
    """The import path of a policy object, for the record.

    Examples
    --------
    >>> policy_path(race)
    'daskmetrics.bandit.policies:race'
    """
    definition = policy if hasattr(policy, "__qualname__") else type(policy)
    return f"{definition.__module__}:{definition.__qualname__}"


# --- the values of race


def _encoded_cell(state: State) -> Choice | None:
    problem = state.problem
    if math.isfinite(state.most_cells) or not problem.shares_encoding.any():
        return None
    is_encoded = problem.same_encoding(state.observations.arm, state.observations.task)
    is_nearly_free = is_encoded & problem.shares_encoding
    cells = state.open & is_nearly_free & state.usable[:, None]
    if not cells.any():
        return None
    cell = int(cells.argmax())
    arm, task = divmod(cell, len(problem.tasks))
    return Choice(arm, task, {"because": "encoded"})


def _rivals(state: State) -> Rivals:
    arms, spread, distance = distances(state, state.posterior)
    better = normal_tail(distance)
    density = np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi)
    loss = spread * (density - distance * better)
    is_rival = (better > NEGLIGIBLE) & (spread > LEAST_SD)
    rivals = Rivals(arms, better, spread, loss).take(is_rival)
    greatest_loss_first = np.argsort(-rivals.loss, kind="stable")
    return rivals.take(greatest_loss_first)


def _draw_rivals(all_rivals: Rivals, rng: np.random.Generator) -> Rivals:
    """At most `RIVALS` of them; those drawn at random represent the others."""
    if len(all_rivals) <= RIVALS:
        return all_rivals
    top = np.arange(RIVALS // 2)
    others = np.arange(RIVALS // 2, len(all_rivals))
    loss = np.maximum(all_rivals.loss[others], 1e-300)
    # a weighted sample without replacement (Efraimidis and Spirakis, 2006)
    arrival = rng.exponential(size=len(others)) / loss
    earliest = np.argsort(arrival)[: RIVALS - len(top)]
    drawn = np.sort(others[earliest])
    return all_rivals.take(np.append(top, drawn))


def _value_per_cost(state: State, drawn: Rivals) -> Floats:
    """Weighted variance removed per cost (2, S + 1, T): by single cells, by duels."""
    arms = np.append(drawn.arms, state.leader)
    with_objectives, variance, with_leader = _posterior_of_cells(state.posterior, arms)
    # with (rival - leader)
    with_differences = with_objectives[..., :-1] - with_objectives[..., -1:]
    weight = drawn.loss / drawn.spread**2
    is_paid = state.paid[arms]
    is_open = state.open[arms]
    variance = variance + np.where(is_paid, 0.0, state.posterior.model.noise + NOISE)
    cost = _shared_cost(state, arms) + 1e-12 * state.problem.exhaustive_cost

    removed = (with_differences**2 @ weight) / np.maximum(variance, 1e-12)
    single = np.where(is_open, removed / cost, 0.0)

    # a duel measures the rival's cell less the leader's, of which one may be known
    spread = variance + variance[-1] - 2 * with_leader
    with_differences = with_differences - with_differences[-1]
    removed = (with_differences**2 @ weight) / np.maximum(spread, 1e-9)
    unpaid = np.where(is_open, cost, 0.0)
    duel_cost = unpaid + unpaid[-1]
    is_measurable = is_open | is_paid
    is_possible = is_measurable & is_measurable[-1] & (duel_cost > 0)
    duel = np.where(is_possible, removed / np.maximum(duel_cost, 1e-300), 0.0)
    duel[-1] = 0.0
    # the probability that a cell of a task gives a score, from the outcomes so far (T,)
    finished = state.problem.cells_per_task(state.finished)
    scored = state.problem.cells_per_task(state.observations)
    success_rate = (scored + 1.0) / (finished + 1.0)
    return np.stack([single, duel]) * success_rate


def _posterior_of_cells(posterior: Posterior, arms: Ints) -> tuple[Floats, Floats, Floats]:
    """Covariances of cells with objectives, variances, covariances with the leader.

    The leader is the last of the arms. The shapes are (a, T, a), (a, T) and (a, T); the last are
    with the leader's cells of the same tasks.
    """
    model = posterior.model
    cross = posterior.cross[:, arms]
    tasks = len(posterior.problem.tasks)
    with_objectives = np.empty((len(arms), tasks, len(arms)))
    prior_with_leader = np.zeros((len(arms), tasks))
    variance_explained, leader_explained = np.empty((2, len(arms), tasks))
    for these, white in posterior.whitened(arms):
        with_objectives.T[:, these] = -_product(white, cross).T[:, None]
        variance_explained.T[these] = (white**2).sum(axis=1)
        leader_explained.T[these] = np.einsum("an,n->a", white, white[-1])
    priors = model.parts(arms, arms)
    for prior, group in zip(priors, posterior.problem.task_groups, strict=True):
        of_task = group @ (model.weights @ group)
        with_objectives += prior[:, None, :] * of_task[None, :, None]
        prior_with_leader += prior[:, -1:] * (group**2).sum(axis=1)
    variance = np.maximum(model.cell_variance - variance_explained, 0.0)
    return with_objectives, variance, prior_with_leader - leader_explained


def _product(rows: Floats, columns: Floats) -> Floats:
    """The matrix product, with all rows rounded alike.

    BLAS rounds a last odd row differently, which breaks ties.
    """
    count = len(rows)
    if count % 2:
        rows = np.vstack([rows, rows[-1:]])
    return (rows @ columns)[:count]


def _shared_cost(state: State, arms: Ints) -> Floats:
    """Cost of some arms' cells (a, T), sharing new encodings of a checkpoint."""
    problem = state.problem
    cost = state.cost[arms]
    scoring = np.minimum(problem.score_cost[arms], cost)
    encoding = cost - scoring
    checkpoint = problem.checkpoint_index[arms]
    is_same = checkpoint[:, None] == checkpoint
    sharing = is_same.sum(axis=1, keepdims=True)
    shared_cost = scoring + encoding / sharing
    return np.where(problem.encode_cost[arms] > 0, shared_cost, cost)


def normal_tail(x: Floats) -> Floats:
    """Probability that a standard normal variable exceeds x.

    >>> normal_tail(np.array([0.0, 1.96])).round(3).tolist()
    [0.5, 0.025]
    """
    return np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in x.tolist()])
