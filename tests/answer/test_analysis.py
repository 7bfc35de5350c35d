from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from daskmetrics.answer import analysis
from daskmetrics.answer.analysis import rank_correlation
from daskmetrics.answer.status import worker_use
from daskmetrics.core.events import Record, RunFinished
from daskmetrics.core.names import Arm
from daskmetrics.core.results import Scored
from daskmetrics.metrics.registry import CATALOGUE
from tests.events import started
from tests.report.conftest import mean_scores, scores_of


def test_every_value_of_the_journal_occurs_once(finished):
    metrics = analysis.metrics(finished)
    assert len(metrics) == len(CATALOGUE) and len(metrics["infonce"]) == 4 * 3 + 5 * 4
    assert Arm("small", "step0", 0) not in metrics["curvature"]  # undefined there
    assert sum(map(len, scores_of(finished).values())) == finished.result.cells


def test_an_encoding_counts_once_where_it_ran():
    """Also on a worker that has recorded nothing."""

    def scored_on(worker: str, seconds: float, encoded_on: str | None, encoding: float) -> Record:
        value = Scored(0.5, 0.1, encode_seconds=encoding, encoded_on=encoded_on)
        return Record("k", "n", "score", "ok", value, seconds=seconds, worker=worker)

    records = [
        scored_on("cpu", 1.0, "gpu", 40.0),
        scored_on("cpu", 2.0, "gpu", 40.0),
        scored_on("old", 1.0, None, 30.0),
    ]
    begun = started()
    entries = [begun, RunFinished(begun.key, begun.at + 100)]
    uses = worker_use(entries, records)
    assert uses.index.tolist() == ["cpu", "gpu", "old"] and uses["units"].tolist() == [2, 0, 1]
    assert uses["busy"].tolist() == [0.03, 0.4, 0.31] and uses["cpu"].isna().all()


def test_a_mean_score_needs_every_task(finished):
    scores, means = scores_of(finished), mean_scores(finished)
    assert Arm("small", "step8", 1) not in means  # one of its cells failed
    for arm, mean in means.items():
        assert mean == pytest.approx(np.mean(list(scores[arm].values()))) and len(scores[arm]) == 3
    assert analysis.leader(finished)[1][0] == max(means.values())


def test_failures_are_grouped_by_reason(finished):
    by_kind = {failure.kind: failure for failure in analysis.failures(finished)}
    assert by_kind["measure"].example == "tiny@step0" and by_kind["measure"].count == 1
    assert by_kind["score"].example == "small@step8/1:stdlib:package"
    assert by_kind["curvature"].status == "nan"  # an undefined value within a sound record


def test_an_encoding_is_counted_once_for_all_its_layers(finished):
    cells = [finished.cells[r.key] for r in finished.records if r.kind == "score" and r.ok]
    spent = analysis.spending(finished)
    assert spent["encode"] == 2.0 * len({(cell.arm.checkpoint, cell.task) for cell in cells})
    assert spent["score"] == len(cells) and spent["measure"] == 9 and spent["train"] == 10


def test_suites_and_losses_are_in_order_of_training(finished):
    tiny, small = analysis.suites(finished)
    assert (tiny.model, tiny.layers, small.layers) == ("tiny", (0, 1, 2), (0, 1, 2, 3))
    # the failed one is included
    assert tiny.revisions == (
        "step0",
        "step1",
        "step2",
        "step4",
        "step8",
    )
    assert [step for step, _ in analysis.losses(finished)["tiny"]] == [0, 1, 2, 4, 8]


def test_open_cells_of_an_unfinished_search(a_run):
    run = a_run(decisions=7)
    assert run.cells_open == 1 and run.counts["score", "ok"] == 6


def test_a_constant_has_no_rank_correlation():
    assert np.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))


def test_the_table_of_correlations_is_spearmans_by_kind_of_task(finished):
    run = finished
    found = analysis.correlations(run)
    known, metrics = scores_of(run), analysis.metrics(run)
    tasks = [task for task, about in run.tasks.items() if about["kind"] == "retrieval"]
    arms = [arm for arm, own in known.items() if tasks[0] in own and arm in metrics["curvature"]]
    pairs = [(metrics["curvature"][arm][0], known[arm][tasks[0]]) for arm in arms]
    rho, count = found.loc[("curvature", "retrieval"), ["rho", "count"]]
    assert len(tasks) == 1 and count == len(arms)
    assert rho == pytest.approx(spearmanr(*zip(*pairs, strict=True)).statistic)
    assert set(found.loc["curvature"].index) == {"all tasks", "classification", "retrieval"}
