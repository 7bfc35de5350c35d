"""A run on mteb tasks, and its results in files of mteb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from daskmetrics import config, experiment
from daskmetrics.core.files import RunFolder
from daskmetrics.execution import Record
from daskmetrics.execution.journal import read
from daskmetrics.experiment import Display
from daskmetrics.report import Run, to_mteb

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
LAYERS = (0, 3, 6)
Prepare = Callable[..., experiment.Experiment]


@pytest.fixture(scope="module")
def prepared(local_mteb, minilm):
    """Prepares a run on these tasks, of the local benchmark where they begin with ``mteb:``."""

    def prepare(*tasks):
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
        return experiment.prepare(config.parse(wanted))

    return prepare


ALL = ("mteb:LocalSTS", "mteb:LocalPairs", "stdlib:closeness")


def scores(folder):
    records = [entry for entry in read(folder.journal) if isinstance(entry, Record)]
    return {record.name: record for record in records if record.kind == "score"}


def test_results_are_exported_in_mtebs_layout(prepared, minilm, tmp_path):
    import mteb
    from mteb.models import ModelMeta

    whole, first = prepared(*ALL), RunFolder(tmp_path / "first")
    experiment.run(whole, first, Display())
    own = scores(first)
    assert len(own) == 3 * len(LAYERS) and all(record.ok for record in own.values())
    assert not first.embeddings.exists()
    models = [{"name": "minilm", "source": str(minilm)}]
    records = Run(first.path).records
    assert to_mteb(records, models, tmp_path / "out") == (2 * len(LAYERS), len(LAYERS))

    cache = mteb.ResultCache(tmp_path / "out")
    (protocol,) = {each.protocol.key[:12] for each in whole.readers.values()}
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


def test_variants_of_a_task_share_a_file(prepared, local_mteb, tmp_path):
    place = f"mteb:{local_mteb.MULTILINGUAL}"
    run = RunFolder(tmp_path / "run")
    experiment.run(prepared(place, f"{place}(languages=deu)"), run, Display())
    recorded = Run(run.path)
    models = recorded.config["models"]
    assert to_mteb(recorded.records, models, tmp_path / "out") == (2 * len(LAYERS), 0)
    files = list((tmp_path / "out").glob("results/*/*/experiments/*/LocalLanguages.json"))
    assert len(files) == len(LAYERS)

    # two models of one hub id, each with one of the variants
    records = [
        replace(record, name=record.name.replace("minilm", "b" if "deu" in record.name else "a"))
        for record in recorded.records
    ]
    models = [{"name": name, "source": "org/minilm"} for name in "ab"]
    assert to_mteb(records, models, tmp_path / "shared") == (2 * len(LAYERS), 0)
    files = list((tmp_path / "shared").glob("results/*/*/experiments/*/LocalLanguages.json"))
    assert len(files) == len(LAYERS)
    for file in files:
        assert file.read_text().count("hf_subset") > 1, "the second has replaced the first"
