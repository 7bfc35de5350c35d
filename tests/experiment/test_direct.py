"""One model here and now gives the numbers of a run."""

from __future__ import annotations

import csv
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas
import pytest
import torch
from click.testing import CliRunner
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

import daskmetrics as dm
from daskmetrics import config, experiment
from daskmetrics.cli import main
from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.experiment import Display
from daskmetrics.experiment.direct import tasks_of

TEXTS = [
    "one",
    "a much longer sentence about the layers of a network, " * 8,
    "two words",
    "three little words",
]
METRICS = ["effective_rank", "curvature", "infonce", "cka_next"]
SEED = 3


def reviews(path: Path, rows: int) -> Path:
    """Passages with the package each is of as their label."""
    passages = corpus.passages(corpus.held_out(), 10)
    rows_of = {
        name: [each.text for each in passages if each.package == name][: rows // 2]
        for name in ("email", "http")
    }
    found = [(text, name) for name, texts in rows_of.items() for text in texts]
    random.Random(0).shuffle(found)
    with path.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([("body", "stars"), *found])
    return path


@pytest.fixture(scope="module")
def finished(
    minilm: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dm.Run, Path, list[str]]:
    """A real run of a real encoder that scored every layer on a file, with the file and its
    prompts.
    """
    folder = tmp_path_factory.mktemp("direct")
    data = reviews(folder / "reviews.csv", 80)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKMETRICS_CACHE", str(folder / "cache"))
        prepared = experiment.prepare(
            config.parse(
                {
                    "name": "direct",
                    "seed": SEED,
                    "models": [{"name": "minilm", "source": str(minilm)}],
                    "corpus": {"prompts": 12},
                    "metrics": METRICS,
                    "tasks": [f"file:{data}(text=body, label=stars)"],
                    "search": {"policy": "sweep", "budget": 1.0},
                    "cluster": {"workers": 1},
                }
            )
        )
        experiment.run(prepared, RunFolder(folder / "run"), Display())
    return dm.open(folder / "run"), data, list(prepared.prompts)


@pytest.fixture(scope="module")
def small(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dm.Leaderboard]:
    """A table with the board of the first and the last layer on it."""
    data = reviews(tmp_path_factory.mktemp("small") / "reviews.csv", 40)
    return data, dm.layers(minilm, data, "body", "stars", layers=[0, 6])


def test_metrics_are_those_of_the_store_of_a_run(finished, minilm: Path) -> None:
    run, _, prompts = finished
    measured, stored = (
        dm.measure(str(minilm), prompts, METRICS, seed=SEED),
        run.metrics.isel(model=0, checkpoint=0),
    )
    assert measured.sizes == {"layer": 7} and set(measured) == set(stored.data_vars)
    for name, values in measured.items():
        np.testing.assert_allclose(
            values.values, stored[name].values, rtol=1e-6, atol=1e-9, err_msg=name
        )
    assert measured.curvature.attrs == stored.curvature.attrs


def test_scores_are_those_of_a_run_on_the_same_file(finished, minilm: Path) -> None:
    run, data, _ = finished
    board = dm.layers(minilm, data, "body", "stars", seed=SEED)
    (task,) = run.tasks
    assert list(board.weights) == [task]
    scores = {each.arm.layer: each.scores[task] for each in board.arms}
    assert len(scores) == 7 and len(set(scores.values())) > 1
    for arm, recorded in run.recorded.items():
        assert scores[arm.layer] == pytest.approx(
            (recorded[task].score, recorded[task].stderr), abs=1e-9
        )
    best = run.verdict.overall
    assert {each.arm.layer for each in board.arms if each.tied} == {
        arm.layer for arm in best.tied
    } | {best.arm.layer}


def test_the_best_arm_is_loaded_and_saved_as_a_smaller_model(
    finished, minilm: Path, tmp_path: Path
) -> None:
    run, _, _ = finished
    best = run.best()
    encoder = best.load()
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(
        vectors, dm.embed(minilm, TEXTS).sel(layer=best.arm.layer).values, atol=1e-6
    )
    folder = best.save(tmp_path / "saved")
    np.testing.assert_allclose(
        SentenceTransformer(str(folder), device="cpu").encode(TEXTS), vectors, atol=1e-5
    )
    card = (folder / "README.md").read_text()
    assert f"cut after layer {best.arm.layer}" in card
    assert str(best.arm) in card
    assert next(iter(run.tasks)) in card
    with pytest.raises(ConfigError, match="not empty"):
        best.save(folder)


def test_models_in_memory_give_the_vectors_of_their_folder(minilm: Path) -> None:
    expected = dm.embed(minilm, TEXTS).values
    shipped = SentenceTransformer(str(minilm), device="cpu")
    np.testing.assert_allclose(dm.embed(shipped, TEXTS).values, expected, atol=1e-6)
    np.testing.assert_allclose(expected[:, 6], shipped.encode(TEXTS), atol=1e-5)
    mean = dm.embed(minilm, TEXTS, pooling="mean").values
    network = AutoModel.from_pretrained(minilm).train()
    np.testing.assert_allclose(dm.embed(network, TEXTS).values, mean, atol=1e-6)
    assert all(module.training for module in network.modules())
    with_head = AutoModelForMaskedLM.from_config(network.config)
    with_head.base_model.load_state_dict(network.state_dict(), strict=False)
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    np.testing.assert_allclose(
        dm.embed(with_head, TEXTS, tokenizer=tokenizer).values, mean, atol=1e-6
    )
    modules = {"embeddings": network.embeddings, "last": network.encoder.layer[5]}
    hooked = dm.embed(network, TEXTS, modules, tokenizer=tokenizer)
    assert hooked.layer.values.tolist() == ["embeddings", "last"]
    np.testing.assert_allclose(hooked.values, mean[:, [0, 6]], atol=1e-6)
    shorter = dm.embed(minilm, TEXTS, [6], max_length=16).values
    assert np.abs(shorter - expected[:, [6]]).max(axis=(1, 2))[1] > 1e-3


def test_any_network_is_read_at_the_modules_that_are_named() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    items = list(torch.randn(40, 4))
    vectors = dm.embed(network, items, {"hidden": network[1]})
    expected = network[1](network[0](torch.stack(items))).detach().numpy()
    np.testing.assert_allclose(vectors.sel(layer="hidden").values, expected, atol=1e-6)
    measured = dm.measure(network, items, ["spectral"], {"hidden": network[1], "out": network[2]})
    assert measured.effective_rank.sel(layer="out") < 3.001
    assert measured.effective_rank.sel(layer="hidden") < 8.001
    with pytest.raises(DataError, match="different numbers of dimensions: 3 and 8"):
        dm.embed(network, items, {"hidden": network[1], "out": network[2]})
    with pytest.raises(
        DataError, match=r"infonce.* compare views of a text, but the items are of type Tensor"
    ):
        dm.measure(network, items, "infonce", {"hidden": network[1]})
    other: dict[str, Any] = {"elsewhere": torch.nn.Linear(2, 2)}
    for layers, wrong, message in (
        ("all", items, "The layers of a Sequential are not known"),
        (other, items, "'elsewhere' is not a module"),
        ({"": network[1]}, items, "a name must not be empty"),
        ({"hidden": network[1]}, ["a text"], "be stacked into one tensor.*Give `tokenizer=`"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            dm.embed(network, wrong, layers)


def test_a_table_in_memory_gives_the_scores_of_its_file(small, minilm: Path) -> None:
    data, board = small
    frame = pandas.read_csv(data)
    datasets = pytest.importorskip("datasets")
    boards = [board] + [
        dm.layers(minilm, given, "body", "stars", layers=[0, 6])
        for given in (frame, datasets.Dataset.from_pandas(frame), frame.to_dict("records"))
    ]
    means = [[(each.arm.layer, each.mean, each.stderr) for each in board.arms] for board in boards]
    assert means[1:] == means[:1] * 3
    with pytest.raises(
        ConfigError, match=r"Unknown column in 'data' \(as 'text'\) 'bdy'. Did you mean 'body'"
    ):
        dm.layers(minilm, frame, "bdy", "stars")


def test_a_table_that_converts_itself_is_the_same_task_as_one_of_pandas() -> None:
    frame = pandas.DataFrame({"body": [f"text {i}" for i in range(40)], "stars": [1, 2] * 20})

    class Table:
        """As of polars."""

        columns: ClassVar = list(frame)

        def to_dict(self) -> dict[str, list[object]]:
            return frame.to_dict("list")

        def to_pandas(self) -> pandas.DataFrame:
            return frame

    (expected,) = tasks_of(frame, {"text": "body", "label": "stars"})
    (converted,) = tasks_of(Table(), {"text": "body", "label": "stars"})
    assert converted.key == expected.key


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: dm.embed("./nowhere", ["x"]), "no folder './nowhere'"),
        (lambda m: dm.embed("gpt2", ["x"]), "'gpt2' is not in the cache and the hub cannot be"),
        (lambda m: dm.embed("nobody/nothing", ["x"]), "'nobody/nothing' is not in the cache"),
        (lambda m: dm.embed("test", ["x"]), r"HF_HUB_OFFLINE is set\)\. Did you mean 'tests'"),
        (lambda m: dm.embed(m, "one text"), r"got one text: 'one text'. Write it as \[text\]"),
        (lambda m: dm.embed(m, []), "Got 0 texts; 1 or more are needed"),
        (lambda m: dm.embed(m, ["x"], pool="mean"), "Unknown key 'pool'.*Did you mean 'pooling'"),
        (lambda m: dm.embed(m, ["x"], [9]), r"layers 0\.\.\.6, but not \[9\]"),
        (lambda m: dm.embed(3, ["x"]), "A int is no model"),
        (lambda m: dm.measure(m, TEXTS, "efective_rank"), "Did you mean 'effective_rank'"),
        (lambda m: dm.layers(m, 3), "Data of type int cannot be read"),
        (lambda m: dm.layers(m, ["stdlib:ordr"]), "Did you mean 'stdlib:order'"),
        (lambda m: dm.layers(m, "nothing.csv"), "File 'nothing.csv' does not exist"),
        (lambda m: dm.layers(m, ["stdlib:order"], text="body"), "text name columns"),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_remedy(
    call, message: str, minilm: Path, monkeypatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises((ConfigError, DataError), match=message):
        call(minilm)


def test_the_command_prints_the_layers_and_gives_json(small, minilm: Path) -> None:
    data, board = small
    words = f"layers {minilm} --data {data} --text body --label stars --layers 0,6".split()
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 0 and "Layers of model@main" in shown.output
    rows = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["layers"]
    frame = board.to_frame()
    assert [row["layer"] for row in rows] == frame["layer"].tolist()
    assert [row["mean"] for row in rows] == pytest.approx(frame["mean"].tolist(), abs=1e-12)
    parts = ["--readouts", "pooling=mean,last", "--readouts", "layers=each,concat(0, 6)"]
    shown = CliRunner().invoke(main, [*words, *parts])
    assert "last,concat0+6" in shown.output and "readout" in shown.output
    readouts = {"pooling": ["mean", "last"], "layers": ["each", "concat(0, 6)"]}
    assert (
        str(dm.layers(minilm, data, "body", "stars", layers=[0, 6], readouts=readouts))
        in shown.output
    )
    wrong = CliRunner().invoke(main, [*words, "--readouts", "poolling=mean"])
    assert wrong.exit_code == 2 and "pooling" in wrong.output
    nothing = CliRunner().invoke(main, ["layers", str(minilm)])
    assert nothing.exit_code == 2 and "Give either --data FILE" in nothing.output


def test_checkpoints_of_a_folder_and_several_models_share_one_leaderboard(
    small, tmp_path: Path, minilm: Path
) -> None:
    (data, board), out = small, tmp_path / "out"
    same = {row.arm.layer: row.mean for row in board.arms}
    for step in (8, 16):
        shutil.copytree(minilm, out / f"checkpoint-{step}")
    board = dm.layers([out, minilm], data, layers=[0, 6])
    names = {str(row.arm.checkpoint) for row in board.arms}
    assert names == {"out@checkpoint-8", "out@checkpoint-16", "model@main"}
    assert all(row.mean == same[row.arm.layer] for row in board.arms)
    with pytest.raises(ConfigError, match="Two models are called 'model'"):
        dm.layers([minilm, minilm], data, layers=[0])


def test_the_best_layer_is_saved(small, tmp_path: Path, minilm: Path) -> None:
    _, board = small
    best = board.arms[0].arm.layer
    saved = SentenceTransformer(str(board.save(tmp_path / "saved")), device="cpu")
    vectors = dm.embed(minilm, TEXTS, [best]).values[:, 0]
    np.testing.assert_allclose(saved.encode(TEXTS), vectors, atol=1e-5)
    assert "chance: " in str(board) and "last layer" in str(board)
    with pytest.raises(ConfigError, match=r"run\.best"):
        replace(board, found=None).save(tmp_path / "other")


def test_columns_without_a_usual_name_are_proposed(tmp_path: Path, minilm: Path) -> None:
    data = tmp_path / "own.csv"
    data.write_text("x,y\n" + "".join(f"a rather long text {i},{i % 3}\n" for i in range(30)))
    with pytest.raises(ConfigError, match="text=x, label=y"):
        dm.layers(minilm, data)
