from __future__ import annotations

import numpy as np
import pytest
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

import daskmetrics as dm
from daskmetrics import store
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.keys import seed_of
from daskmetrics.domain.names import Arm
from daskmetrics.experiment.problem import build_problem
from daskmetrics.tasks import resolve
from tests.embedders import WIDTH, network_of, save
from tests.experiment.test_direct import reviews
from tests.stored import read_block

MODEL = {"name": "a", "train": {"width": 16, "depth": 2, "steps": 4}}


def test_readouts_change_the_run_and_not_the_scores_that_it_had(prepared):
    plain, more = prepared(), prepared(readouts={"pooling": ["protocol", "last"]})
    plain, more = plain.plan, more.plan
    arm, task = Arm("a", "step1", 2), plain.tasks[0]
    assert more.key != plain.key
    assert more.measure_keys == plain.measure_keys
    assert more.score_key(arm, task) == plain.score_key(arm, task)
    assert len(more.arms) == 2 * len(plain.arms)


@pytest.mark.parametrize(
    ("readouts", "message"),
    [
        ({"dimensions": [17]}, "'a': Readout '17d' keeps 17 dimensions, but vectors have 16"),
        ({"pooling": ["as_shipped"]}, "'a': It is to be read with .* but ships no pooling"),
    ],
)
def test_an_impossible_readout_is_refused_with_the_remedy(prepared, readouts, message):
    with pytest.raises(ConfigError, match=message):
        prepared(readouts=readouts)


def test_encoding_is_paid_once_and_scoring_by_dimensions(prepared):
    experiment = prepared(readouts={"dimensions": ["all", 4]}, models=[MODEL])
    problem = build_problem(experiment)
    cost = {arm.readout: problem.score_cost[i, 0] for i, arm in enumerate(problem.arms)}
    assert cost["4d"] < cost[""]
    assert len(np.unique(problem.encode_cost[:, 0])) == 1
    assert problem.arms[problem.default_arms[0]] == Arm("a", "step4", 2)


PROMPTS = {"query": "query: ", "document": "passage: ", "other": "text: "}


def test_a_run_scores_readouts_as_the_layers_function_does(tmp_path, client):
    modules = [Pooling(WIDTH, "mean"), Normalize()]
    network = network_of("e5", tmp_path / "network")
    prompts = {"prompts": PROMPTS, "default_prompt_name": "other"}
    folder = save(tmp_path / "model", network, modules, **prompts)
    data = reviews(tmp_path / "reviews.csv", 60)
    readouts = {"pooling": ["protocol", "last"], "dimensions": ["all", 8]}
    run = dm.run(
        models=[{"name": "model", "source": str(folder)}],
        tasks=[f"file:{data}(text=body, label=stars)"],
        budget=1.0,
        client=client,
        folder=tmp_path / "run",
        readouts=readouts,
        corpus={"prompts": 64},
        metrics=["prompt_entropy"],
    )
    protocol = store.open_tree(run.folder.store).attrs["protocols"]["model"]
    assert (protocol["prompts"], protocol["shipped"]["steps"]) == (PROMPTS, ["normalize"])

    (task,) = run.kinds
    scored = {arm: values[task].score for arm, values in run.recorded.items()}
    assert len(scored) == 4 * 4
    board = dm.layers(folder, data, "body", "stars", readouts=readouts)
    means = {str(row.arm).partition("/")[2]: row.mean for row in board.arms}
    assert means == {str(arm).partition("/")[2]: score for arm, score in scored.items()}
    verdict = run.verdict.overall
    tied = {(row.arm.layer, row.arm.readout) for row in board.arms if row.tied}
    assert tied == {(arm.layer, arm.readout) for arm in (*verdict.tied, verdict.arm)}
    widths = {arm.readout: values[task].dimensions for arm, values in run.recorded.items()}
    assert (widths["last"], widths["8d"]) == (32, 8)
    block = read_block(run.folder.store, "scores", next(iter(scored)).checkpoint)
    assert np.sort(block.values[:, 0]).tolist() == sorted(scored.values())

    (own,), best = resolve([f"file:{data}(text=body, label=stars)"]), run.best()
    seed = seed_of("score", own.key, run.config["seed"])
    with best.load() as encoder:
        assert own.evaluate(encoder.encode(own.texts()), seed).value == scored[best.arm]
    read = next(iter(run.recorded.values()))[task].reading
    assert (read.texts, read.layer) == (60, 3) and read.seconds > 0
    assert run.cost_of(Arm("model", "main", 3)).texts_per_second > 0
