"""Benchmark on several model families: searches of their tables by all policies, whether the stated
confidence holds, and what transfers from one family to another.

It needs the tables ``published`` and ``other_families`` of scores and metrics in the folder
DASKMETRICS_PUBLISHED_DATA. Arms without a score on every task are left out. ``--small`` uses
made-up tables and two seeds.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from replay import (
    ReplayPlan,
    ReplayTrial,
    Scenario,
    ScoreRow,
    ScoreTable,
    Setting,
    read,
    run_trials,
    score_table,
    true_objectives,
)
from replay_statistics import CONFIDENCE_AT, confidence_table, ending_table, success_table
from rivals import sixty_percent_depth

from daskmetrics.bandit import Learner, Outcome, policy_named, recommend
from daskmetrics.bandit.problem import Floats
from daskmetrics.core.errors import ConfigError, UndefinedError
from daskmetrics.core.table import Table
from daskmetrics.domain.names import Arm
from daskmetrics.domain.recommendation import NORMAL_95

FILES = ("published", "other_families")
DEPTH = 0.6  # the rule of thumb, as a share of the layers
WIDTH = 0.1  # of the kernel that smooths scores over the depth
RIDGE = 10.0  # penalty of the regression on metrics, in arms
SHARES = (0.003, 0.01, 0.02, 0.05, 0.1)  # of the exhaustive cost, at which policies are compared
ENDINGS = 0.3  # budget of the searches whose ends are compared
RIVALS = (
    "policies:lucb",
    "policies:halving",
    "policies:thompson",
    "policies:gp_ei",
    "random",
    "rivals:tpe",
)
COSTS = {
    "published": Scenario("published"),
    "+ 30 s": Scenario("published", overhead=30.0),
    "unit": Scenario("unit"),
}
SMALL_PYTHIAS = ("Pythia-14m", "Pythia-70m", "Pythia-160m")
MAMBAS = ("mamba-130m", "mamba-370m")
#: Tables of several models; of Pythia-410m the last checkpoint.
JOINED = {
    "both mambas": MAMBAS,
    "small Pythias and mambas": (*SMALL_PYTHIAS, *MAMBAS),
    "all Pythias": (*SMALL_PYTHIAS, "Pythia-410m"),
    "LLM2Vec and mamba-370m": ("LLM2Vec-mntp-8B", "mamba-370m"),
    "all seven": (*SMALL_PYTHIAS, "Pythia-410m", *MAMBAS, "LLM2Vec-mntp-8B"),
}


def family_of(model: str) -> str:
    return model.partition("-")[0]


@dataclass(frozen=True)
class Model:
    """The last checkpoint of one model: its arms by layer."""

    name: str
    depth: Floats  # (A,), relative
    score: Floats  # (A,), mean over all tasks
    metrics: Mapping[str, Floats]  # (A,), with mean 0 and sd 1 over the layers; mean over datasets

    @property
    def family(self) -> str:
        return family_of(self.name)

    @property
    def standing(self) -> Floats:
        """Scores with mean 0 and sd 1 over the layers (A,)."""
        return np.asarray((self.score - self.score.mean()) / self.score.std())

    def regret(self, arm: int) -> float:
        return float(1 - self.score[arm] / self.score.max())


def complete(table: ScoreTable) -> dict[str, ScoreTable]:
    """The arms of each model that have a score on every task."""
    good = np.isfinite(table.scores).all(axis=1)
    rows: dict[str, list[ScoreRow]] = {}
    for i in np.flatnonzero(good):
        for t, (task, kind) in enumerate(table.kinds.items()):
            arm, score, seconds = (
                table.arms[i],
                float(table.scores[i, t]),
                float(table.seconds[i, t]),
            )
            rows.setdefault(arm.model, []).append(
                ScoreRow(arm, task, score, seconds=seconds, kind=kind)
            )
    return {model: score_table(each) for model, each in rows.items()}


def tables(folder: Path) -> dict[str, ScoreTable]:
    """The complete arms of every model of both files."""
    known = [read(folder / f"{name}_scores.csv.gz") for name in FILES]
    return {model: each for table in known for model, each in complete(table).items()}


def metrics_of(folder: Path) -> dict[Arm, dict[str, float]]:
    """The published metrics of the arms of both files, by name, normalisation, data set and split."""
    metrics: dict[Arm, dict[str, float]] = {}
    for file in FILES:
        table = pd.read_csv(folder / f"{file}_metrics.csv.gz", dtype=str, keep_default_na=False)
        for row in table[table["value"] != ""].to_dict("records"):
            model = "-".join(filter(None, (row["family"], row["size"])))
            arm = Arm(model, row["revision"], int(row["layer"]))
            words = (row.get(column) for column in ("metric", "norm", "dataset", "split"))
            metrics.setdefault(arm, {})[" ".join(filter(None, words))] = float(row["value"])
    return metrics


def made_up() -> tuple[dict[str, ScoreTable], dict[Arm, dict[str, float]]]:
    """Three families with their best layers in the middle, and a metric that rises with the depth."""
    rng, found, metrics = np.random.default_rng(0), {}, {}
    for model in ("alpha-1b", "beta-1b", "gamma-1b"):
        arms = [Arm(model, "main", layer) for layer in range(9)]
        rows = [
            ScoreRow(
                arm,
                f"t{t}",
                0.5 - 0.01 * (arm.layer - 5) ** 2 + rng.normal(0, 0.01),
                seconds=4.0**t,
                kind=kind,
            )
            for t, kind in enumerate(("pairs", "pairs", "classes", "classes"))
            for arm in arms
        ]
        found[model] = score_table(rows)
        metrics |= {arm: {"curvature raw one": arm.layer + rng.normal()} for arm in arms}
    return found, metrics


def models(
    known: Mapping[str, ScoreTable], metrics: Mapping[Arm, Mapping[str, float]]
) -> list[Model]:
    """The last checkpoint of every model with its metrics."""
    result = []
    for name, table in known.items():
        suite = table.suites[0]
        last = [i for i, arm in enumerate(table.arms) if arm.revision == suite.revisions[-1]]
        arms = [table.arms[i] for i in last]
        depth = np.array([arm.layer for arm in arms]) / suite.depth
        result.append(Model(name, depth, table.scores[last].mean(axis=1), _columns(arms, metrics)))
    return result


def _columns(arms: Sequence[Arm], metrics: Mapping[Arm, Mapping[str, float]]) -> dict[str, Floats]:
    """Each metric of these arms, without normalisation, standardised on every dataset and averaged
    over them.
    """
    groups: dict[str, list[Floats]] = {}
    for name in sorted({name for arm in arms for name in metrics.get(arm, {})}):
        values = np.array([metrics.get(arm, {}).get(name, np.nan) for arm in arms])
        if name.split()[1] == "raw" and np.isfinite(values).all() and values.std() > 0:
            groups.setdefault(name.split()[0], []).append((values - values.mean()) / values.std())
    return {name: np.mean(each, axis=0) for name, each in groups.items()}


def last_layer(model: Model, others: Sequence[Model]) -> int:
    return int(model.depth.argmax())


def rule_of_thumb(model: Model, others: Sequence[Model]) -> int:
    return int(np.abs(model.depth - DEPTH).argmin())


def fitted_depth(model: Model, others: Sequence[Model]) -> int:
    """The layer with the greatest mean standing of the other models at its depth, by kernel
    smoothing.
    """

    def at(other: Model) -> Floats:
        near = np.exp(-0.5 * ((model.depth[:, None] - other.depth) / WIDTH) ** 2)
        return np.asarray(near @ other.standing / near.sum(axis=1))

    return int(np.mean([at(other) for other in others], axis=0).argmax())


def fitted_metrics(model: Model, others: Sequence[Model]) -> int | None:
    """The layer with the greatest standing that a ridge regression on the other models' metrics
    predicts.
    """
    others = [other for other in others if other.metrics]
    names = sorted(set(model.metrics).intersection(*(other.metrics for other in others)))
    if not names:
        return None
    x = np.concatenate(
        [np.column_stack([other.metrics[name] for name in names]) for other in others]
    )
    y = np.concatenate([other.standing for other in others])
    slopes = np.linalg.solve(x.T @ x + RIDGE * np.eye(len(names)), x.T @ y)
    return int((np.column_stack([model.metrics[name] for name in names]) @ slopes).argmax())


RULES: Mapping[str, Callable[[Model, Sequence[Model]], int | None]] = {
    f"the layer at {DEPTH:.0%} of the depth": rule_of_thumb,
    "depth fitted on other families": fitted_depth,
    "the last layer": last_layer,
    "label-free metrics fitted on other families": fitted_metrics,
}


def transfer(every: Sequence[Model]) -> Table:
    """Regret of choosing a layer of each model without a score of it."""
    rows = []
    for name, rule in RULES.items():
        chosen = [
            rule(model, [other for other in every if other.family != model.family])
            for model in every
        ]
        regrets = [
            None if arm is None else m.regret(arm) for m, arm in zip(every, chosen, strict=True)
        ]
        means = [
            np.mean(
                [
                    r
                    for r, m in zip(regrets, every, strict=True)
                    if r is not None and (m.metrics or not needs)
                ]
            )
            for needs in (False, True)
        ]
        texts = ("-" if regret is None else f"{regret:.1%}" for regret in regrets)
        rows.append((name, *(f"{mean:.1%}" for mean in means), *texts))
    title = "Loss against the best layer of the last checkpoint, mean raw score over all tasks; nothing of it scored"
    return Table(("rule", "mean", "with metrics", *(m.name for m in every)), tuple(rows), title)


def signs(every: Sequence[Model]) -> Table:
    """Rank correlation of each metric with the score over the layers of each model."""
    from daskmetrics.answer.analysis import rank_correlation

    every = [model for model in every if model.metrics]
    names = sorted(set(every[0].metrics).intersection(*(m.metrics for m in every)))
    rows = []
    for name in names:
        paired = (zip(model.metrics[name], model.score, strict=True) for model in every)
        rows.append((name, *(f"{rank_correlation(pairs):+.2f}" for pairs in paired)))
    return Table(
        ("metric", *(m.name for m in every)),
        tuple(rows),
        "Spearman's rho of a metric and the mean score",
    )


def joined(known: Mapping[str, ScoreTable], reverse: bool = False) -> dict[str, ScoreTable]:
    """Every table with several arms, and the tables of several models."""
    found = dict(known)
    for name, members in JOINED.items():
        if known.keys() >= set(members):
            ordered = members[::-1] if reverse else members
            found[name] = score_table(
                row for member in ordered for row in _last_checkpoint(known[member])
            )
    return found


def _last_checkpoint(table: ScoreTable) -> Iterator[ScoreRow]:
    for i, arm in enumerate(table.arms):
        if arm.revision == table.suites[0].revisions[-1]:
            for t, (task, kind) in enumerate(table.kinds.items()):
                score, seconds = float(table.scores[i, t]), float(table.seconds[i, t])
                yield ScoreRow(arm, task, score, seconds=seconds, kind=kind)


def policies(
    known: Mapping[str, ScoreTable],
    subset: int,
    seeds: range,
    budget: float,
    chosen: argparse.Namespace,
) -> Iterator[Table]:
    """Searches within 1 % of the best after each share of the cost, and the calibration of the
    default policy.
    """
    stated: list[ReplayTrial] = []
    for name, table in joined(known, chosen.reverse).items():
        for label, costs in COSTS.items():
            plan = ReplayPlan(table, replace(costs, subset=subset), budget, 2, CONFIDENCE_AT)
            own = list(run_trials(plan, [Setting(chosen.policy)], seeds, chosen.jobs))
            others = replace(plan, every=8, confidence_at=(), within=0.0)
            beside = seeds[: chosen.rival_seeds]
            trials = [
                *own,
                *(
                    trial
                    for rival in RIVALS
                    for trial in _rival(others, rival, beside, chosen.jobs)
                ),
            ]
            trials += [sixty_percent_depth(plan, seed) for seed in seeds]
            found = success_table(trials, SHARES)
            yield replace(found, title=f"{name} ({len(table.arms)} arms), {label}. {found.title}")
            stated += own
        yield replace(
            confidence_table(stated[-3 * len(seeds) :]),
            title=f"{name}, all costs: stated confidence",
        )
    yield replace(confidence_table(stated), title="All tables: stated confidence")


def endings(
    known: Mapping[str, ScoreTable], subset: int, seeds: range, chosen: argparse.Namespace
) -> Iterator[Table]:
    """Where searches of several models end, by the default rule and without it."""
    every: dict[tuple[str, str], list[ReplayTrial]] = {}
    every_table = joined(known, chosen.reverse)
    several = {name: table for name, table in every_table.items() if name not in known}
    for name, table in (several or every_table).items():
        found = {}
        for label, costs in COSTS.items():
            for rule, within in {"default": recommend.WITHIN, "within: 0": 0.0}.items():
                scenario = replace(costs, subset=subset)
                plan = ReplayPlan(table, scenario, ENDINGS, every=0, within=within)
                trials = list(run_trials(plan, [Setting(chosen.policy)], seeds, chosen.jobs))
                found[label, rule] = trials
                every.setdefault((label, rule), []).extend(trials)
        of_table = ending_table(found)
        yield replace(of_table, title=f"{name} ({len(table.arms)} arms). {of_table.title}")
    yield replace(ending_table(every), title="All tables. Where searches end")


@dataclass(frozen=True)
class Statement:
    """A number that the posterior stated at a moment of a search, and how wrong it was."""

    costs: str
    share: float  # of the exhaustive cost
    what: str
    error: float
    sd: float

    @property
    def holds(self) -> bool:
        return bool(abs(self.error) <= NORMAL_95 * self.sd)


def intervals(
    known: Mapping[str, ScoreTable], subset: int, seeds: range, chosen: argparse.Namespace
) -> Table:
    """How often intervals of 95 % hold, by costs and the share of the cost at which they are stated."""
    searches = [
        delayed(_statements)(table, label, subset, seed)
        for table in joined(known, chosen.reverse).values()
        for label in COSTS
        for seed in seeds
    ]
    every = list(chain.from_iterable(Parallel(chosen.jobs)(searches)))
    rows = []
    for costs, what in product(COSTS, ("score of the winner", "nearest rival", "another arm")):
        cells = []
        for low, high in pairwise((0.0, 0.02, 0.1, 1.0)):
            held = [
                stated.holds
                for stated in every
                if (stated.costs, stated.what) == (costs, what) and low <= stated.share < high
            ]
            cells.append(f"{np.mean(held):.2f} of {len(held)}" if held else "")
        rows.append((costs, what, *cells))
    header = ("costs", "of", "below 2 %", "2 to 10 %", "above")
    return Table(header, tuple(rows), "Intervals of 95 % that hold, by share of the cost")


def _statements(table: ScoreTable, label: str, subset: int, seed: int) -> list[Statement]:
    """What one search states at each doubling of its cost.

    It is the recommended arm's score, and its difference to the arm with the next mean and to one
    that is drawn. Nothing is stated of a last layer before it has the leader's scores.
    """
    scenario = replace(COSTS[label], subset=subset)
    drawn = scenario.draw_tasks(table, seed)
    problem, cells = scenario.build_problem(drawn), drawn.cells()
    truth = true_objectives(problem, cells)
    learner = Learner(problem, policy_named("race"), budget=ENDINGS, window=1, seed=seed)
    rng = np.random.default_rng(seed)
    stated: list[Statement] = []
    moments = iter(CONFIDENCE_AT)
    moment = next(moments)
    while picks := learner.ask(1):
        learner.tell(picks[0].index, Outcome(cells.get(picks[0].cell)))
        share = learner.spent / problem.exhaustive_cost
        if share < moment:
            continue
        moment = next((limit for limit in moments if limit > share), math.inf)
        posterior, leader = learner.state.posterior, learner.state.recommended
        mean = posterior.mean
        error = float(truth[leader] - mean[leader])
        sd = float(posterior.value_sd[leader])
        stated.append(Statement(label, share, "score of the winner", error, sd))
        scored = learner.state.paid
        unknown = {arm for arm in problem.default_arms if (scored[leader] & ~scored[arm]).any()}
        others = [arm for arm in np.argsort(-mean) if arm not in unknown | {leader}]
        for what, arm in (("nearest rival", others[0]), ("another arm", rng.choice(others))):
            gap = mean[leader] - mean[arm]
            (variance,) = posterior.difference_variance(np.array([arm]), leader)
            error = float(truth[leader] - truth[arm] - gap)
            stated.append(Statement(label, share, what, error, math.sqrt(max(variance, 0.0))))
    return stated


def _rival(plan: ReplayPlan, policy: str, seeds: range, jobs: int) -> list[ReplayTrial]:
    """Searches by another policy; none if it scores whole arms and the budget does not always pay
    for one.
    """
    with suppress(ConfigError, UndefinedError):
        return list(run_trials(plan, [Setting(policy)], seeds, jobs))
    return []


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sections = ("transfer", "policies", "endings", "intervals")
    parser.add_argument("section", nargs="*", choices=[*sections, []], default=[])
    parser.add_argument("--models", default="", help="of the searches; separated by commas")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--rival-seeds", type=int, default=10, help="seeds of the other policies, at most"
    )
    parser.add_argument("--policy", default="race")
    parser.add_argument(
        "--reverse",
        action="store_true",
        help="list the models of a joined table the other way round",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--small", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.small:
        known, metrics = made_up()
    else:
        folder = Path(os.environ["DASKMETRICS_PUBLISHED_DATA"])
        known = tables(folder)
    sections = chosen.section or sections
    count = 2 if chosen.small else chosen.seeds
    seeds = range(chosen.first_seed, chosen.first_seed + count)
    subset = 2 if chosen.small else 16
    searched = {
        name: table
        for name, table in known.items()
        if not chosen.models or name in chosen.models.split(",")
    }
    if "transfer" in sections:
        every = models(known, metrics if chosen.small else metrics_of(folder))
        print(transfer(every).as_text(), "\n\n", signs(every).as_text(), "\n", sep="", flush=True)
    budget = 0.6 if chosen.small else max(SHARES)
    printed: list[Iterator[Table]] = []
    if "policies" in sections:
        printed.append(policies(searched, subset, seeds, budget, chosen))
    if "endings" in sections:
        printed.append(endings(searched, subset, seeds, chosen))
    if "intervals" in sections:
        printed.append(iter([intervals(searched, subset, seeds, chosen)]))
    for table in chain.from_iterable(printed):
        print(table.as_text(), "\n", flush=True)


if __name__ == "__main__":
    main()
