"""The choice of subsets and splits, without the benchmark and beside the benchmark's own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks import mteb_run as subsets
from daskmetrics.tasks import resolve
from daskmetrics.tasks.mteb import LAYER_BY_LAYER, MtebTask
from daskmetrics.tasks.mteb_run import Declaration, declared

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
DATA = os.environ.get("DASKMETRICS_PUBLISHED_DATA")
WORLD = {
    "en": ("eng-Latn",),
    "de": ("deu-Latn",),
    "de-en": ("deu-Latn", "eng-Latn"),
    "en-x": ("eng-Latn",),
}


@pytest.fixture(autouse=True)
def benchmark():
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("split=tset", r"Unknown split of 'mteb:STS17' 'tset'. Did you mean 'test'"),
        ("subsets=en-fr", r"Unknown subset of 'mteb:STS17' 'en-fr'.*en-en"),
        ("languages=nld", r"no chosen subset that is only in nld.*nl-en \(nld-Latn\+eng-Latn\)"),
        ("subsets=en-en, languages=kor", "no chosen subset that is only in kor.*en-en"),
        ("language=eng", r"of a task of the benchmark 'language'. Did you mean 'languages'"),
    ],
)
def test_what_a_task_does_not_have_is_refused_with_what_it_has(options, message):
    with pytest.raises(ConfigError, match=message):
        resolve([f"mteb:STS17({options})"])


@given(
    st.sets(st.sampled_from(sorted(WORLD)), min_size=1),
    st.sets(st.sampled_from(["validation", "test"]), min_size=1),
    st.sets(st.sampled_from(["eng", "deu-Latn"]), min_size=1),
)
def test_only_what_is_asked_is_selected_in_the_order_of_the_task(names, splits, languages):
    world = Declaration(WORLD, ("validation", "test"))
    asked = {language[:3] for language in languages}
    spoken = [s for s, codes in WORLD.items() if {code[:3] for code in codes} <= asked]
    assert world.select("t", {"languages": sorted(languages)}).subsets == tuple(spoken)
    named = {"split": sorted(splits), "subsets": sorted(names)}
    chosen = world.select("t", named)
    assert chosen.splits == tuple(split for split in world.splits if split in splits)
    assert chosen.subsets == tuple(subset for subset in WORLD if subset in names)
    if both := [subset for subset in spoken if subset in names]:
        chosen = world.select("t", {**named, "languages": sorted(languages)})
        assert chosen.subsets == tuple(both)


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(["af", "de", "en", "fr", "zh-CN"]), min_size=1),
            st.sets(st.sampled_from(["test", "validation"])),
        ),
        min_size=1,
        max_size=4,
    )
)
@example(variants=[({"af"}, set()), ({"af"}, {"test"})])
def test_tasks_of_one_run_differ_in_name_and_in_key(variants):
    names = ["mteb:MassiveIntentClassification"]
    for languages, splits in variants:
        split = f", split={'+'.join(sorted(splits))}" if splits else ""
        names.append(f"{names[0]}(subsets={'+'.join(sorted(languages))}{split})")
    tasks = resolve(names)
    assert len({task.name for task in tasks}) == len({task.key for task in tasks}) == len(tasks)
    wanted = {
        (frozenset(languages), frozenset(splits or {"test"})) for languages, splits in variants
    }
    assert len(tasks) == len(wanted | {(frozenset(["en"]), frozenset(["test"]))})


def test_resolving_tasks_and_metrics_imports_no_heavy_library():
    code = """
import sys
from daskmetrics import metrics
from daskmetrics.metrics import views
from daskmetrics.tasks import resolve
metrics.resolve(["all"])
resolve(["stdlib:all"])
for task in resolve(["preset:layer-by-layer-32", "mteb:STS22(languages=deu+fra)", "mteb:MIRACLRetrieval"]):
    task.key, task.statistics, task.description
assert not {"torch", "sklearn", "mteb", "dask", "transformers"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.filterwarnings("ignore:The task")  # that some are in beta
def test_the_default_subsets_are_those_that_mteb_selects():
    import mteb
    from mteb.get_tasks import _TASKS_REGISTRY

    names = random.Random(0).sample(sorted(_TASKS_REGISTRY), 60)
    for name in [*names, *LAYER_BY_LAYER, "BelebeleRetrieval"]:
        declaration = declared(name)
        assert declaration.splits == tuple(_TASKS_REGISTRY[name].metadata.eval_splits), name
        try:
            task = mteb.get_task(name, languages=["eng"], exclusive_language_filter=True)
            subsets_of_mteb = task.hf_subsets
        except ValueError:  # no subset in English
            subsets_of_mteb = _TASKS_REGISTRY[name].metadata.hf_subsets
        assert declaration.select(name, {}).subsets == tuple(subsets_of_mteb), name
        assert MtebTask(name).selection == declaration.select(name, {})


def test_mteb_is_asked_once_and_an_error_names_how_to_see_it(tmp_path, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "false")
    subsets._declarations.cache_clear()
    try:
        with pytest.raises(ConfigError, match="mteb cannot list its tasks"):
            declared("STS17")
        written = tmp_path / "tasks" / f"mteb-{subsets.release()}.json"
        written.write_text('{"STS17": {"languages": {"en-en": ["eng-Latn"]}, "splits": ["test"]}}')
        assert declared("STS17") == Declaration({"en-en": ("eng-Latn",)}, ("test",))
        assert declared("NoSuchTask") is None
    finally:
        subsets._declarations.cache_clear()


def test_the_sizes_are_those_of_the_selection():
    sizes = [MtebTask(name).statistics for name in LAYER_BY_LAYER]
    assert 1_390_000 < sum(size.texts for size in sizes if size) < 1_420_000
    (two,) = resolve(["mteb:STS17(subsets=en-en+ko-ko)"])
    assert two.statistics.texts > MtebTask("STS17").statistics.texts == 500
    MtebTask("SynPerTextToneClassification").statistics  # noqa: B018 - its file has other fields
    assert MtebTask("NoSuchTask").statistics is None


@pytest.mark.shared
@pytest.mark.skipif(
    not DATA, reason="set DASKMETRICS_PUBLISHED_DATA to the folder of published_scores.csv.gz"
)
def test_the_preset_is_what_the_paper_published():
    published = pd.read_csv(Path(str(DATA)) / "published_scores.csv.gz")
    tasks = {task.benchmark_name: task for task in resolve(["preset:layer-by-layer-32"])}
    assert tasks.keys() == set(published["task"])
    for name, rows in published.groupby("task"):
        selection = tasks[name].selection
        count = len(selection.subsets)
        assert (*set(rows["split"]),) == selection.splits
        # files of STS17 have eight subsets with English in them; its score is that of the only one
        # in English
        assert set(rows["n_en"]) == {count}
        assert set(rows["n_subsets"]) == {8 if name == "STS17" else count}
        score = rows["score_en"]
        if count == 2:
            score = (rows["score_first_subset"] + score) / 2
        np.testing.assert_allclose(rows["main_score"], score, atol=1e-6)
