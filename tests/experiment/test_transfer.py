"""A run on mteb tasks, its results in mteb files, and a second run that imports them at no cost."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from daskmetrics import config, experiment
from daskmetrics.bandit import Learner, policy_named
from daskmetrics.checkpoints.rolling import Downloads
from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution import Journal, Record, Settings
from daskmetrics.execution.journal import read
from daskmetrics.execution.loop import Loop
from daskmetrics.experiment import Display
from daskmetrics.experiment import search as search
from daskmetrics.experiment import transfer as transfer

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
LAYERS = (0, 3, 6)
Prepare = Callable[..., experiment.Experiment]


@pytest.fixture(scope="module")
def prepared(local_mteb, minilm):
    """Prepares a run on these tasks, of the local benchmark where they begin with ``mteb:``."""

    def prepare(*tasks, **changes):
        places = {f"mteb:{name}": f"mteb:{place}" for name, place in local_mteb.PLACES.items()}
        wanted = {
            "name": "exchange",
            "models": [{"name": "minilm", "source": str(minilm), "layers": list(LAYERS)}],
            "corpus": {"prompts": 8},
            "metrics": [],
            "tasks": [places.get(task, task) for task in tasks],
            "search": {"policy": "sweep", "budget": 1.0},
            "cluster": {"workers": 1},
        }
        return experiment.prepare(config.parse({**wanted, **changes}))

    return prepare


ALL = ("mteb:LocalSTS", "mteb:LocalPairs", "stdlib:closeness")


def scores(folder):
    records = [entry for entry in read(folder.journal) if isinstance(entry, Record)]
    return {record.name: record for record in records if record.kind == "score"}


def score_without_workers(prepared, run):
    """A search whose scores are all recorded; one that is not would need a worker."""
    problem = search.build_problem(prepared, prepared.suites)
    learner = Learner(problem, policy_named("sweep"), budget=1.0, window=9, seed=0)
    with Journal(run.journal, run.lock) as journal:
        source = search.SearchSource(prepared, learner, "key", run.path, Downloads(()), ())
        loop = Loop(source, journal, Settings())
        # decisions are written a moment after they are made
        assert [*loop.step(0.0), *loop.step(1.0)] == [] and loop.done
    return learner


def test_results_are_exported_in_mtebs_layout_and_imported_again_at_no_cost(prepared, tmp_path):
    import mteb
    from mteb.models import ModelMeta

    whole, first = prepared(*ALL), RunFolder(tmp_path / "first")
    experiment.run(whole, first, Display())
    own = scores(first)
    assert len(own) == 3 * len(LAYERS) and all(record.ok for record in own.values())
    assert not first.embeddings.exists()
    assert transfer.to_mteb(first, tmp_path / "out") == (2 * len(LAYERS), len(LAYERS))

    cache = mteb.ResultCache(tmp_path / "out")
    (protocol,) = {each.key[:12] for each in whole.protocols.values()}
    for layer in LAYERS:
        keywords = {"layer": layer, "protocol": protocol}
        meta = ModelMeta.create_empty(
            {"name": "local/minilm", "revision": "main", "experiment_kwargs": keywords}
        )
        for task in ("LocalSTS", "LocalPairs"):
            result = cache.load_task_result(task, meta)
            score = own[f"minilm@main/{layer}:mteb:{task}"].value.score
            assert result is not None and result.get_score() == pytest.approx(score, abs=1e-6)
        loaded = cache.load_results(
            models=[meta], tasks=["LocalSTS"], load_experiments="match_kwargs"
        )
        assert [result.task_names for result in loaded.model_results] == [["LocalSTS"]]

    second, both = RunFolder(tmp_path / "second"), prepared(*ALL[:2])
    counts, _ = transfer.import_results(both, second, tmp_path / "out")
    assert +counts == {"new": 2 * len(LAYERS)}
    counts, _ = transfer.import_results(both, second, tmp_path / "out")
    assert +counts == {"known": 2 * len(LAYERS)}
    for name, record in scores(second).items():
        assert record.value.score == pytest.approx(own[name].value.score, abs=1e-6)
        assert (
            0.95 < record.value.stderr / own[name].value.stderr < 1.25
        )  # of the texts that differ
        assert record.worker == "imported"
    score_without_workers(both, second)

    other = prepared(*ALL, protocol={"pooling": "last"})
    counts, _ = transfer.import_results(other, RunFolder(tmp_path / "other"), tmp_path / "out")
    assert +counts == {"other_protocol": 2 * len(LAYERS)}
    fewer = RunFolder(tmp_path / "fewer")
    counts, _ = transfer.import_results(prepared(*ALL[:1]), fewer, tmp_path / "out")
    assert +counts == {"new": len(LAYERS), "elsewhere": len(LAYERS)}


LANGUAGES = {
    "default": ["eng-Latn"],
    "en": ["eng-Latn"],
    "en-ext": ["eng-Latn"],
    "de": ["deu-Latn"],
}


def publish(folder, name, task, **splits):
    """A result as others publish it: the layer in the folder's name, and bare NaN in the file."""
    path = folder / "results" / "local__minilm" / "main" / "experiments" / name / f"{task}.json"
    path.parent.mkdir(parents=True)
    parts = {
        split: [
            {"main_score": s, "ap": np.nan, "hf_subset": name, "languages": LANGUAGES[name]}
            for name, s in scores.items()
        ]
        for split, scores in splits.items()
    }
    header = {"task_name": task, "dataset_revision": "r", "mteb_version": "2.0"}
    path.write_text(json.dumps({**header, "evaluation_time": 3.0, "scores": parts}))
    return path


def test_published_results_need_no_protocol_and_no_worker(prepared, tmp_path):
    for number, layer in enumerate(LAYERS):
        name = f"layer_{layer}__pooling_mean"
        publish(tmp_path, name, "LocalSTS", test={"default": 0.4 + 0.1 * number})
    only, run = prepared("mteb:LocalSTS"), RunFolder(tmp_path / "run")
    counts, _ = transfer.import_results(only, run, tmp_path)
    assert +counts == {"new": len(LAYERS), "unmarked": len(LAYERS)}
    record = scores(run)["minilm@main/3:mteb:LocalSTS"]
    assert (record.value.score, record.seconds, record.worker) == (0.5, 3.0, "imported")
    learner = score_without_workers(only, run)
    assert learner.recommendation().arm.layer == LAYERS[-1]


@pytest.mark.parametrize(("task", "scored"), [("Banking77Classification", 3080), ("NFCorpus", 323)])
def test_only_what_is_scored_counts_in_the_error_of_a_published_result(
    prepared, tmp_path, task, scored
):
    publish(tmp_path, "layer_3__pooling_mean", task, test={"default": 0.8})
    run = RunFolder(tmp_path / "run")
    transfer.import_results(prepared(f"mteb:{task}"), run, tmp_path)
    value = scores(run)[f"minilm@main/3:mteb:{task}"].value
    # neither texts that a probe learns from nor documents
    assert (value.n, value.stderr) == (scored, pytest.approx((0.8 * 0.2 / scored) ** 0.5))


def test_a_result_that_is_cut_or_stands_twice_is_named(prepared, tmp_path):
    publish(tmp_path, "layer_3__pooling_last", "LocalSTS", test={"default": 0.5})
    twin = publish(tmp_path, "layer_3__pooling_mean", "LocalSTS", test={"default": 0.6})
    only, run = prepared("mteb:LocalSTS"), RunFolder(tmp_path / "run")
    with pytest.raises(DataError, match=r"minilm@main/3:mteb:LocalSTS has two scores: 0.5 in "):
        transfer.import_results(only, run, tmp_path)
    twin.write_text(twin.read_text()[:40])
    with pytest.raises(DataError, match="not a complete result"):
        transfer.import_results(only, run, tmp_path)
    assert not run.path.exists()


def test_only_the_splits_and_subsets_of_the_task_are_imported(prepared, local_mteb, tmp_path):
    english = {"en": 0.4, "en-ext": 0.6}
    publish(tmp_path, "layer_0", "LocalLanguages", test=english)
    more = {"test": {**english, "de": 0.9}, "validation": {"en": 0.1}}
    publish(tmp_path, "layer_3", "LocalLanguages", **more)
    publish(tmp_path, "layer_6", "LocalLanguages", test={"en": 0.4, "de": 0.9})
    place, run = f"mteb:{local_mteb.MULTILINGUAL}", RunFolder(tmp_path / "run")
    wanted = prepared(place, f"{place}(languages=deu)")
    counts, example = transfer.import_results(wanted, run, tmp_path)
    assert (counts["new"], counts["incomplete"], counts["elsewhere"]) == (4, 2, 0)
    assert "layer_0" in example and "split 'test' has no score of de" in example
    imported = {name: record.value.score for name, record in scores(run).items()}
    assert {name.partition(":")[0] + name[-6:]: score for name, score in imported.items()} == {
        "minilm@main/0guages": 0.5,
        "minilm@main/3guages": 0.5,
        "minilm@main/3s=deu)": 0.9,
        "minilm@main/6s=deu)": 0.9,
    }
    assert transfer.to_mteb(run, tmp_path / "out") == (4, 0)  # variants of a task share a file
    again = RunFolder(tmp_path / "again")
    counts, _ = transfer.import_results(wanted, again, tmp_path / "out")
    assert (counts["new"], counts["incomplete"]) == (4, 2)
    assert {n: record.value.score for n, record in scores(again).items()} == pytest.approx(imported)
