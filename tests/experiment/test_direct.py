"""One model here and now gives the numbers of a run."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

import daskmetrics as dm
from daskmetrics.cli import main
from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.experiment.direct import tasks_of

LONG = "a much longer sentence about the layers of a network, " * 8
TEXTS = ["one", LONG, "two words", "three little words"]
METRICS = ["effective_rank", "curvature", "infonce", "cka_next"]
SEED = 3


def reviews(path, rows):
    """Passages with the package each is of as their label."""
    passages = corpus.passages(corpus.held_out(), 10)
    chosen = []
    for name in ("email", "http"):
        texts = [passage.text for passage in passages if passage.package == name]
        chosen += [(text, name) for text in texts[: rows // 2]]
    random.Random(0).shuffle(chosen)
    with path.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([("body", "stars"), *chosen])
    return path


@pytest.fixture(scope="module")
def finished(minilm, tmp_path_factory, client):
    """A real run of a real encoder that scored every layer on a file, with the file."""
    folder = tmp_path_factory.mktemp("direct")
    data = reviews(folder / "reviews.csv", 80)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKMETRICS_CACHE", str(folder / "cache"))
        run = dm.run(
            models=[{"name": "minilm", "source": str(minilm)}],
            tasks=[f"file:{data}(text=body, label=stars)"],
            seed=SEED,
            corpus={"prompts": 12},
            metrics=METRICS,
            search={"policy": "sweep", "budget": 1.0},
            folder=folder / "run",
            client=client,
        )
    return run, data


@pytest.fixture(scope="module")
def small(minilm, tmp_path_factory):
    """A table with the board of the first and the last layer on it."""
    data = reviews(tmp_path_factory.mktemp("small") / "reviews.csv", 40)
    return data, dm.layers(minilm, data, "body", "stars", layers=[0, 6])


def test_metrics_are_those_of_the_store_of_a_run(finished, minilm):
    run, _ = finished
    prompts = json.loads(run.folder.corpus.read_text())
    measured = dm.measure(str(minilm), prompts, METRICS, seed=SEED)
    stored = run.metrics.isel(model=0, checkpoint=0)
    assert measured.sizes == {"layer": 7} and set(measured) == set(stored.data_vars)
    for name, values in measured.items():
        np.testing.assert_allclose(
            values.values, stored[name].values, rtol=1e-6, atol=1e-9, err_msg=name
        )
    assert measured.curvature.attrs == stored.curvature.attrs


def test_the_best_arm_is_loaded_and_saved_as_a_smaller_model(finished, minilm, tmp_path):
    run, _ = finished
    best = run.best()
    vectors = best.load().encode(TEXTS)
    assert vectors.shape == (4, 384)
    direct = dm.embed(minilm, TEXTS, [best.arm.layer]).values[:, 0]
    np.testing.assert_allclose(vectors, direct, atol=1e-6)
    folder = best.save(tmp_path / "saved")
    saved = SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(saved.encode(TEXTS), vectors, atol=1e-5)
    card = (folder / "README.md").read_text()
    floors = [task.floor.text for task in run.plan.tasks if task.floor]
    for fact in (f"cut after layer {best.arm.layer}", str(best.arm), *run.kinds, *floors):
        assert fact in card
    assert floors
    with pytest.raises(ConfigError, match="not empty"):
        best.save(folder)


def test_the_best_arm_is_not_loaded_with_other_weights(finished, minilm, tmp_path):
    run, _ = finished
    copy = tmp_path / "copy"
    shutil.copytree(minilm, copy)
    best = replace(run.best(), source={**run.best().source, "path": str(copy)})
    assert best.load().encode(TEXTS).shape == (4, 384)
    weights = load_file(copy / "model.safetensors")
    weights["embeddings.word_embeddings.weight"] *= 1.01
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match=r"has other weights, .* than when the run began"):
        best.save(tmp_path / "saved")
    shutil.rmtree(copy)
    with pytest.raises(DataError, match=r"copy' is gone. Restore it"):
        best.save(tmp_path / "saved")


def test_models_in_memory_give_the_vectors_of_their_folder(minilm):
    def same(model, expected, **options):
        vectors = dm.embed(model, TEXTS, **options).values
        np.testing.assert_allclose(vectors, expected, atol=1e-6)

    shipped = SentenceTransformer(str(minilm), device="cpu")
    expected = dm.embed(minilm, TEXTS).values
    np.testing.assert_allclose(expected[:, 6], shipped.encode(TEXTS), atol=1e-5)
    same(shipped, expected)
    mean = dm.embed(minilm, TEXTS, pooling="mean").values
    network = AutoModel.from_pretrained(minilm).train()
    same(network, mean)
    assert all(module.training for module in network.modules())
    with_head = AutoModelForMaskedLM.from_config(network.config)
    with_head.base_model.load_state_dict(network.state_dict(), strict=False)
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    same(with_head, mean, tokenizer=tokenizer)
    shorter = dm.embed(minilm, TEXTS, [6], max_length=16).values
    assert np.abs(shorter - expected[:, [6]]).max(axis=(1, 2))[1] > 1e-3


def test_vectors_that_are_not_finite_are_warned_of(minilm):
    network = AutoModel.from_pretrained(minilm)
    token = AutoTokenizer.from_pretrained(minilm).convert_tokens_to_ids("three")
    network.embeddings.word_embeddings.weight.data[token] = torch.nan
    with pytest.warns(UserWarning, match="Vectors of 1 of 4 texts are not finite"):
        vectors = dm.embed(network, TEXTS)
    assert np.isnan(vectors[3]).all() and np.isfinite(vectors[:3]).all()


def test_a_table_in_memory_gives_the_scores_of_its_file(small, minilm):
    data, board = small
    frame, columns = pandas.read_csv(data), {"text": "body", "label": "stars"}
    datasets = pytest.importorskip("datasets")
    # as of polars, which converts itself
    other = SimpleNamespace(columns=list(frame), to_pandas=lambda: frame)
    other.to_dict = lambda: frame.to_dict("list")
    tables = (frame, datasets.Dataset.from_pandas(frame), frame.to_dict("records"), other)
    assert len({tasks_of(table, columns)[0].key for table in tables}) == 1
    same = dm.layers(minilm, tables[1], "body", "stars", layers=[0, 6])
    for row, other in zip(board.arms, same.arms, strict=True):
        assert (row.arm.layer, row.mean, row.stderr) == (other.arm.layer, other.mean, other.stderr)
    with pytest.raises(ConfigError, match=r"in 'data' \(as 'text'\) 'bdy'. Did you mean 'body'"):
        dm.layers(minilm, frame, "bdy", "stars")


NAMELESS = pandas.DataFrame([["a text", "a"], ["another", "b"]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: dm.embed("./nowhere", ["x"]), "no folder './nowhere'"),
        (lambda m: dm.embed("gpt2", ["x"]), "'gpt2' is not in the cache and the hub cannot be"),
        (lambda m: dm.embed("test", ["x"]), r"HF_HUB_OFFLINE is set\)\. Did you mean 'tests'"),
        (lambda m: dm.embed(m, "one text"), r"got one text: 'one text'. Write it as \[text\]"),
        (
            lambda m: dm.embed(m, pandas.DataFrame({"text": ["x"]})),
            r"got a DataFrame. Give its column",
        ),
        (lambda m: dm.embed(m, ["x"], [1.5]), "got 1.5; write a whole number"),
        (lambda m: dm.layers(m, NAMELESS, 7, 1), "Unknown column .* '7'. Valid: 0, 1"),
        (lambda m: dm.embed(m, []), "Got 0 texts; 1 or more are needed"),
        (lambda m: dm.embed(m, ["x"], pool="mean"), "Unknown key 'pool'.*Did you mean 'pooling'"),
        (lambda m: dm.embed(m, ["x"], [9]), r"layers 0\.\.\.6, but not \[9\]"),
        (lambda m: dm.embed(m, ["x"], layers=6), "layers': got 6"),
        (lambda m: dm.embed(m, ["x"], layers=[1.5]), "got 1.5; write a whole number"),
        (lambda m: dm.embed(m, ["x", 1]), "Item 1 is a int; a text is needed"),
        (lambda m: dm.embed(m, ["x", "\ud83d"]), "Item 1 has half of a surrogate pair"),
        (lambda m: dm.layers([], ["stdlib:order"]), "at least one model"),
        (lambda m: dm.embed(torch.nn.Linear(2, 2), ["x"]), "A Linear is no model"),
        (lambda m: dm.embed(AutoTokenizer.from_pretrained(m), ["x"]), r"A \w+ is no model"),
        (lambda m: dm.measure(m, TEXTS, "efective_rank"), "Did you mean 'effective_rank'"),
        (lambda m: dm.layers("~nouser/m", ["stdlib:word"]), "no folder '~nouser/m'"),
        (lambda m: dm.layers(m, 3), "Data of type int cannot be read"),
        (
            lambda m: dm.layers(m, ["stdlib:word"], readouts={"dimensions": 999}),
            r"Model 'model': Readout .* keeps 999 dimensions",
        ),
        (lambda m: dm.layers(m, ["stdlib:order"], text="body"), "text name columns"),
        (lambda m: dm.layers([m, m], ["stdlib:word"], layers=[0]), "Two models are called 'model'"),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_remedy(call, message, minilm, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises((ConfigError, DataError), match=message):
        call(minilm)


def test_the_command_prints_the_layers_and_gives_json(small, minilm):
    data, board = small
    words = f"layers {minilm} --data {data} --text body --label stars --layers 0,6".split()
    rows = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["layers"]
    frame = board.to_frame()
    assert [row["layer"] for row in rows] == frame["layer"].tolist()
    assert [row["mean"] for row in rows] == pytest.approx(frame["mean"].tolist(), abs=1e-12)
    parts = ["--readouts", "pooling=mean,last", "--readouts", "dimensions=all, 64"]
    shown = CliRunner().invoke(main, [*words, *parts]).output
    readouts = {"pooling": ["mean", "last"], "dimensions": ["all", 64]}
    same = dm.layers(minilm, data, "body", "stars", layers=[0, 6], readouts=readouts)
    assert str(same) in shown and "last,64d" in shown and "Layers of model@main" in shown
    shallow = next(row.arm for row in same.arms if (row.arm.layer, row.arm.readout) == (0, "last"))
    assert same.found.last_layer(shallow) == replace(shallow, layer=6)
    grouped = dm.layers(
        minilm, data, "body", "stars", group="body", layers=[0, 6], columns={"score": "macro_f1"}
    )
    shown = CliRunner().invoke(main, [*words, "--group", "body", "--score", "macro_f1"]).output
    assert str(grouped) in shown and "macro_f1 of" in shown and "groups, ±" in shown
    wrong = CliRunner().invoke(main, [*words, "--readouts", "poolling=mean"])
    assert wrong.exit_code == 2 and "pooling" in wrong.output
    nothing = CliRunner().invoke(main, ["layers", str(minilm)])
    assert nothing.exit_code == 2 and "Give either --data FILE" in nothing.output


def test_checkpoints_and_models_share_one_leaderboard(small, tmp_path, minilm):
    (data, board), out = small, tmp_path / "out"
    same = {row.arm.layer: row.mean for row in board.arms}
    for step in (8, 16):
        shutil.copytree(minilm, out / f"checkpoint-{step}", copy_function=os.symlink)
    board = dm.layers([out, minilm], data, layers=[0, 6])
    names = {str(row.arm.checkpoint) for row in board.arms}
    assert names == {"out@checkpoint-8", "out@checkpoint-16", "model@main"}
    assert all(row.mean == same[row.arm.layer] for row in board.arms)


def test_the_best_layer_is_saved(small, tmp_path, minilm):
    _, board = small
    best = board.arms[0].arm.layer
    saved = SentenceTransformer(str(board.save(tmp_path / "saved")), device="cpu")
    vectors = dm.embed(minilm, TEXTS, [best]).values[:, 0]
    np.testing.assert_allclose(saved.encode(TEXTS), vectors, atol=1e-5)
    assert "(chance 0.500)" in repr(board) and "the last layer" in repr(board)
    cheaper = board.cheaper(0.9)
    assert cheaper.arm.layer == 0 and cheaper.speedup is None and not cheaper.cost.layers
    saved = board.save(tmp_path / "small", within=0.9)
    assert len(SentenceTransformer(str(saved), device="cpu")[0].auto_model.encoder.layer) == 0
    assert "Within 90 % (95 %): layer 0: no layer to compute" in board.within(0.9)
    assert "cheaper ones may lose more" in board.within(0.0001)
    with pytest.raises(ConfigError, match=r"run\.best"):
        replace(board, found=None).save(tmp_path / "other")
