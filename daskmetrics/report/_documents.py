"""What the commands print for other programs: plain values with the keys of docs/json.md."""

from __future__ import annotations

from typing import Any

from daskmetrics.core._outcomes import Difference
from daskmetrics.core.names import Arm
from daskmetrics.report import _analysis as analysis
from daskmetrics.report._explain import simpler_arms
from daskmetrics.report._run import Run
from daskmetrics.report._terminal import idle_now
from daskmetrics.report._tradeoffs import TradeOff
from daskmetrics.report._worth import Worth


def summary(run: Run) -> dict[str, Any]:
    """The verdict of a run, as plain JSON values for other programs."""
    verdict = run.verdict.as_dict() if run.result else None
    return {"name": run.start.name, "state": run.state, "verdict": verdict}


def status_document(run: Run) -> dict[str, Any]:
    """Progress, failures, time and the leading or the best arm."""
    counts: dict[str, dict[str, int]] = {}
    for (kind, status), n in run.counts.items():
        counts.setdefault(kind, {})[status] = n
    leader = analysis.leader(run) if run.tasks else None
    return {
        "name": run.start.name,
        "folder": run.folder.path,
        "state": run.state,
        "finished": run.finished,
        "driver": run.driver,
        "counts": counts,
        "arms": run.start.arms,
        "checkpoints": run.start.checkpoints,
        "cells": {"planned": run.cells_planned, "scored": run.counts["score", "ok"], "open": run.cells_open},
        "leader": {"arm": leader[0], "score": leader[1]} if leader else None,
        "best": run.best().arm if run.result else None,
        "cost": cost_document(run),
        "seconds": analysis.spending(run),
        "failures": analysis.failures(run),
        "warnings": run.start.warnings,
        "idle_gpus": {} if run.finished else idle_now(run.folder),
    }


def cost_document(run: Run) -> dict[str, float | None]:
    """The assumed cost of the search in seconds, so far and of scoring every cell."""
    if run.result:
        spent, whole = run.result.spent, run.result.exhaustive
        return {"spent": spent, "exhaustive": whole, "share": spent / whole}
    return {"spent": sum(pick["cost"] for pick in run.picks), "exhaustive": None, "share": None}


def best_document(run: Run) -> dict[str, Any]:
    """The best arm beside the default arm, with the verdict of ``summary.json``."""
    best = run.best()
    tasks = {
        task: {
            "score": best.scores.get(task),
            "default": best.default_scores.get(task),
            "difference": difference_document(best.differences.get(task)),
        }
        for task in run.tasks
    }
    return {
        **summary(run),
        "folder": run.folder.path,
        "best": {**arm_document(best.arm), "score": best.score, "stderr": best.stderr},
        "default": {**arm_document(best.default), "score": best.default_score, "stderr": best.default_stderr},
        "difference": difference_document(best.gain),
        "confirmed": best.confirmed,
        "probability": best.probability,
        "tasks": tasks,
        "weights": best.weights,
        "reward": best.reward,
        "cost": cost_document(run),
        "readouts": [_worth_document(each) for each in run.worth.each],
        "code": best.code,
    }


def _worth_document(one: Worth) -> dict[str, Any]:
    tasks = {task: difference_document(each) for task, each in one.tasks.items()}
    at_best = one.at_best and difference_document(one.at_best)
    apart = {"difference": difference_document(one.difference), "tasks": tasks, "at_best": at_best}
    return {**vars(one), **apart, "verdict": one.verdict}


def near_best_document(run: Run, within: float) -> dict[str, Any]:
    """The simpler arms that lose at most a share of the best arm's score in the worst case, simplest first."""
    arms = [
        {
            **arm_document(simpler.arm),
            "loss": simpler.loss,
            "most_lost": simpler.most_lost,
            "cost": run.cost_of(simpler.arm),
        }
        for simpler in simpler_arms(run, within)
    ]
    return {"name": run.start.name, "within": within, "best": arm_document(run.verdict.overall.arm), "arms": arms}


def trade_offs_document(run: Run) -> dict[str, Any]:
    """Scores against costs: the arms scored on every task, and which of them no other beats."""
    found = run.trade_offs()
    arms = [_trade_off(each) for each in found.arms]
    return {"name": run.start.name, "arms": arms, "front": [_trade_off(each) for each in found.front]}


def _trade_off(one: TradeOff) -> dict[str, Any]:
    cost = {**vars(one.cost), "texts_per_second": one.cost.texts_per_second}
    about = {"score": one.score, "stderr": one.stderr, "gain": difference_document(one.gain), "cost": cost}
    return {**arm_document(one.arm), **about}


def arm_document(arm: Arm) -> dict[str, Any]:
    """An arm by its name and by its parts."""
    return {"arm": arm, **vars(arm)}


def difference_document(difference: Difference | None) -> dict[str, Any] | None:
    """A difference with the probability that it is positive."""
    return {**vars(difference), "probability": difference.probability} if difference else None
