"""Scores, metrics, arrays, failures and seconds of a run, from its files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import arm_named, posterior_of
from daskmetrics.answer.status import worker_use
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.domain.events import RunFinished
from daskmetrics.domain.names import Arm, Cell
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Scored, Status
from daskmetrics.metrics.registry import CATALOGUE
from tests.events import joined, started
from tests.report.conftest import STEPS, scores_of


def test_the_store_and_the_journal_have_the_same_values(finished):
    assert analysis.metrics(finished.records).keys() == CATALOGUE.keys()
    assert sum(map(len, scores_of(finished).values())) == finished.result.recommendation.cells
    expected = {"metrics": {}, "scores": {task: {} for task in finished.kinds}}
    for name, values in analysis.metrics(finished.records).items():
        expected["metrics"][name] = {arm: value for arm, (value, _) in values.items()}
    for arm, by_task in scores_of(finished).items():
        for task, score in by_task.items():
            expected["scores"][task][arm] = score
    for what, by_name in expected.items():
        frame = getattr(finished, what)[list(by_name)].to_dataframe()
        for name, values in by_name.items():
            places = [(arm.model, arm.revision, arm.layer) for arm in values]
            assert frame[name].loc[places].tolist() == list(values.values())
            assert frame[name].count() == len(values)


def test_arrays_have_names_units_and_missing_values(finished):
    metrics = finished.metrics
    assert dict(metrics.sizes) == {"model": 2, "checkpoint": 5, "layer": 4}
    for name in ("curvature", "curvature_stderr"):
        assert metrics[name].attrs["units"] == "radians"
    assert metrics["checkpoint"].values.tolist() == list(STEPS)
    assert metrics["step"].values.tolist() == [0, 1, 2, 4, 8]
    absent = {"model": "tiny", "layer": 3}
    assert np.isnan(metrics["infonce"].sel(absent)).all()
    assert (metrics["infonce_status"].sel(absent) == Status.MISSING).all()
    assert np.isnan(metrics["infonce"].sel(model="tiny", checkpoint="step0")).all()  # it failed


def test_an_encoding_counts_once_where_it_ran(finished):
    """Also on a worker that has recorded nothing; and once for all layers."""

    def scored_on(worker: str, seconds: float, encoded_on: str | None, encoding: float) -> Record:
        value = Scored(0.5, 0.1, encode_seconds=encoding, encoded_on=encoded_on)
        return Record("k", "m@main/0:t", "score", "ok", value, seconds=seconds, worker=worker)

    records = [
        scored_on("cpu", 1.0, "gpu", 40.0),
        scored_on("cpu", 2.0, "gpu", 40.0),
        scored_on("old", 1.0, None, 30.0),
    ]
    begun = started()
    uses = worker_use([begun, RunFinished("k", begun.at + 100)], records)
    assert uses.index.tolist() == ["cpu", "gpu", "old"] and uses["units"].tolist() == [2, 0, 1]
    assert uses["busy"].tolist() == [0.03, 0.4, 0.31] and uses["cpu"].isna().all()
    spent = analysis.spending(records)
    assert spent["score"] == 4.0 and spent["encode"] == 70.0  # computed again, the 40 s are no less
    cells = [Cell.parse(r.name) for r in finished.records if r.kind == "score" and r.ok]
    spent = analysis.spending(finished.records)
    assert spent["encode"] == 2.0 * len({(cell.arm.checkpoint, cell.task) for cell in cells})
    assert spent["score"] == len(cells) and spent["measure"] == 9 and spent["train"] == 10


def test_a_worker_is_not_called_idle_while_programs_train():
    entries = [joined("one"), joined("two"), begun := started(), RunFinished("k", begun.at + 100)]
    trained = Record("t", "m@step1", "train", "ok", seconds=80.0)
    measured = Record("k", "m@step1", "measure", "ok", seconds=45.0, worker="one")
    uses = worker_use(entries, [trained, measured])
    assert uses["busy"].to_dict() == {"one": 0.75}
    assert worker_use(entries, [replace(trained, seconds=200.0), measured])["busy"].isna().all()


def test_the_table_of_correlations_is_spearmans_by_kind_of_task(finished):
    (task,) = (task for task, kind in finished.kinds.items() if kind == "retrieval")
    curvature = analysis.metrics(finished.records)["curvature"]
    pairs = [
        (curvature[arm][0], scores[task])
        for arm, scores in scores_of(finished).items()
        if task in scores and arm in curvature
    ]
    table = analysis.correlations(finished)
    rho, count = table.loc[("curvature", "retrieval"), ["rho", "count"]]
    assert count == len(pairs) and rho == pytest.approx(spearmanr(pairs).statistic)
    assert set(table.loc["curvature"].index) == {"all tasks", "classification", "retrieval"}
    for pairs in ([(1.0, i) for i in range(9)], [(i, i) for i in range(analysis.FEWEST - 1)], []):
        assert np.isnan(analysis.rank_correlation(pairs))


def test_the_posterior_equals_the_one_that_the_search_ended_with(finished):
    ended = posterior_of(finished)
    recommended = finished.result.recommendation
    for standing in (recommended.best, recommended.default):
        index = ended.problem.arm_index[standing.arm]
        assert ended.posterior.mean[index] == pytest.approx(standing.value, abs=1e-6)
        assert ended.posterior.value_sd[index] == pytest.approx(standing.sd, abs=1e-6)
    assert ended.problem.arms[ended.leader] == finished.best().arm


@pytest.mark.parametrize(
    ("story", "reason"), [({"decisions": 1}, "no scores yet"), ({"tasks": ()}, "no tasks")]
)
def test_without_scores_there_is_no_posterior(a_run, story, reason):
    with pytest.raises(DataError, match=reason):
        posterior_of(a_run(**story))


def test_a_name_of_two_layers_is_refused_with_both():
    arms = [Arm("own", "main", layer) for layer in range(3)]
    names = {"own": ("2", "1", "head")}
    assert arm_named("own@main/1", arms, "candidate", names) == arms[1]
    assert arm_named("own@main/head", arms, "candidate", names) == arms[2]
    assert arm_named("own@main/0", arms, "candidate", names) == arms[0]
    with pytest.raises(ConfigError, match=r"Write own@main/0 for the first, and own@main/head for"):
        arm_named("own@main/2", arms, "candidate", names)
