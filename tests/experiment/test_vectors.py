"""The layers of vectors that exist are scored as those of a model that reads texts."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas
import pytest
import torch
import xarray
import zarr
from click.testing import CliRunner
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import daskmetrics as dm
from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.keys import seed_of

N = 60
RANDOM = np.random.default_rng(0)
CLASSES = RANDOM.permutation(N) % 3
NAMES = np.array(["ant", "bee", "cat"])[CLASSES]
GRADES = CLASSES + RANDOM.normal(size=N) / 4
LAYERS = {
    "raw": RANDOM.normal(size=(N, 5)),
    "conv2": np.eye(3)[CLASSES] + RANDOM.normal(size=(N, 3)) / 2,
    "conv10": np.eye(4)[CLASSES] + RANDOM.normal(size=(N, 4)),
}
STACK = RANDOM.normal(size=(N, 3, 4)).astype(np.float32)
STACK[:, 1, :3] += 2 * np.eye(3)[CLASSES]


def means(board):
    return dict(zip(board.to_frame()["layer"], board.to_frame()["mean"], strict=True))


def folds_of(board):
    (task,) = board.found.tasks
    return {"n_splits": 3, "shuffle": True, "random_state": seed_of("score", task.key, 0) % 2**32}


def test_accuracies_are_those_of_scikit_learn():
    board = dm.layers(LAYERS, NAMES)
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.03, max_iter=2000))
    folds = StratifiedKFold(**folds_of(board))
    for name, vectors in LAYERS.items():
        predicted = cross_val_predict(probe, vectors, NAMES, cv=folds)
        assert means(board)[name] == pytest.approx((predicted == NAMES).mean(), abs=1e-12)


def test_floats_are_grades_of_a_regression_as_in_scikit_learn():
    board = dm.layers(LAYERS, GRADES)
    probe = make_pipeline(StandardScaler(), Ridge(alpha=1 / 0.03))
    for name, vectors in LAYERS.items():
        predicted = cross_val_predict(probe, vectors, GRADES, cv=KFold(**folds_of(board)))
        assert means(board)[name] == pytest.approx(spearmanr(predicted, GRADES)[0], abs=1e-9)


@pytest.mark.parametrize("options", [{}, {"kind": "clustering"}])
def test_vectors_score_exactly_as_the_model_that_made_them(minilm, options):
    topics = {"bread": "baked in an oven", "code": "compiled to run", "rain": "falls on roofs"}
    rows = [
        (f"{name} number {i} is {what}", name) for i in range(12) for name, what in topics.items()
    ]
    frame = pandas.DataFrame([*rows, *rows[:2]], columns=["body", "topic"])
    vectors = dm.embed(minilm, frame["body"].tolist(), [0, 3, 6])
    with pytest.warns(UserWarning, match="copies"):
        expected = dm.layers(minilm, frame, "body", "topic", layers=[0, 3, 6], columns=options)
    board = dm.layers(vectors, frame, "body", "topic", columns=options)
    for ours, theirs in zip(board.arms, expected.arms, strict=True):
        name = board.found.layer_name(ours.arm)
        assert (name, ours.mean, ours.stderr) == (str(theirs.arm.layer), theirs.mean, theirs.stderr)


def test_pairs_and_documents_are_numbers_of_vectors(minilm):
    texts = [f"{word} {i}" for i in range(15) for word in ("a question", "an answer")]
    vectors = dm.embed(minilm, texts, "all")
    pairs = pandas.DataFrame({"first": range(0, 30, 2), "second": range(1, 31, 2)})
    tables = {
        "ndcg_at_10": pairs.set_axis(["query", "document"], axis=1),
        "spearman": pairs.assign(score=np.linspace(0, 1, 15)),
        "average_precision": pairs.assign(label=[1, 1, 0] * 5),
    }
    for measure, table in tables.items():
        columns = table.columns[:2]
        named = table.assign(**{name: np.array(texts)[table[name]] for name in columns})
        board, expected = dm.layers(vectors, table), dm.layers(minilm, named)
        assert means(board) == means(expected)
        assert board.found.tasks[0].main_score == measure


def test_candidates_and_several_labels_are_scored(tmp_path):
    rows = [[query, 20 + (query + j) % 20, int(j == 0)] for query in range(20) for j in range(3)]
    documents = [["", 40 + i, ""] for i in range(5)]
    for name, lines in (("candidates", rows), ("documents", [*rows, *documents])):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["query", "document", "relevance"], *lines])
    same = STACK.copy()
    same[20:40] = same[:20]
    for file, kind in (("candidates.csv", "reranking"), ("documents.csv", "retrieval")):
        board = dm.layers(same, tmp_path / file, columns={"kind": kind})
        assert (board.found.tasks[0].kind, board.arms[0].mean) == (kind, 1.0)
    several = [["odd", name] if i % 2 else [name] for i, name in enumerate(NAMES)]
    board = dm.layers(LAYERS, several, columns={"kind": "multilabel_classification"})
    assert board.arms[0].arm.layer == 1


def given_as(kind, folder):
    arrays = {str(i): STACK[:, i] for i in range(3)}
    match kind:
        case "array" | "float16":
            return STACK.astype(np.float16 if kind == "float16" else np.float32)
        case "mapping":
            return arrays
        case "list":
            return list(arrays.values())
        case "tensor" | "bfloat16":
            return torch.tensor(STACK, requires_grad=True).to(
                torch.bfloat16 if kind == "bfloat16" else torch.float32
            )
        case "DataArray":
            return xarray.DataArray(STACK, dims=("text", "layer", "dimension")).transpose()
        case "npy":
            np.save(folder / "a.npy", STACK)
        case "npz":
            np.savez(folder / "a.npz", **arrays)
        case "one in npz":
            np.savez(folder / "a.npz", STACK)
        case "zarr":
            zarr.save_array(folder / "a", STACK)
        case "zarr group":
            zarr.save_group(folder / "a", **arrays)
        case "zarr of xarray":
            xarray.DataArray(
                STACK, dims=("text", "layer", "dimension"), coords={"layer": range(3)}
            ).to_dataset(name="vectors").to_zarr(folder / "a", consolidated=False)
    return str(next(folder.iterdir()))


FORMS = (
    *("array", "float16", "mapping", "list", "tensor", "bfloat16", "DataArray"),
    *("npy", "npz", "one in npz", "zarr", "zarr group", "zarr of xarray"),
)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_vectors_gives_one_answer(form, tmp_path):
    stack = STACK
    if form in ("float16", "bfloat16"):
        stack = torch.tensor(STACK).to(getattr(torch, form)).float().numpy()
    expected = means(dm.layers(stack, CLASSES))
    got = means(dm.layers(given_as(form, tmp_path), CLASSES))
    assert {int(layer): mean for layer, mean in got.items()} == expected


@pytest.mark.parametrize(
    "labels",
    [
        CLASSES.tolist(),
        tuple(CLASSES),
        torch.tensor(CLASSES),
        pandas.Series(CLASSES, index=range(N, 0, -1)),
        pandas.Series(CLASSES).astype("category"),
        pandas.DataFrame({"class": CLASSES}),
        [{"label": label} for label in CLASSES.tolist()],
    ],
)
def test_every_form_of_labels_gives_one_answer(labels):
    assert means(dm.layers(STACK, labels)) == means(dm.layers(STACK, CLASSES))


def test_names_of_layers_are_shown_and_the_last_one_is_the_last():
    board = dm.layers(LAYERS, CLASSES, readouts={"dimensions": ["all", 2]})
    assert set(board.to_frame()["layer"]) == set(LAYERS)
    shown = str(board)
    assert "conv2   default" in shown and "2d" in shown
    assert "over layer conv10, the last layer" in shown
    ticks = [tick.get_text() for tick in board.plot().get_xticklabels()]
    assert set(ticks) == set(LAYERS)
    some = dm.layers(LAYERS, CLASSES, layers=["conv10", "raw"])
    assert set(some.to_frame()["layer"]) == {"raw", "conv10"}
    with pytest.raises(ConfigError, match="Got vectors or an encoder"):
        board.save("saved")


def test_the_cheaper_of_vectors_has_fewer_bytes():
    good = LAYERS["conv2"]
    wide = {"wide": np.hstack([good, np.zeros((N, 6))]), "narrow": LAYERS["conv10"]}
    board = dm.layers(wide, CLASSES)
    assert board.arms[0].arm.layer == 0  # the best
    offered = board.cheaper(0.9)
    assert (offered.arm.layer, offered.cost.bytes, offered.best_cost.bytes) == (1, 16, 36)
    assert "16 bytes a vector in place of 36" in board.within(0.9)
    narrow = dm.layers({"narrow": good, "wide": LAYERS["conv10"]}, CLASSES)
    assert narrow.cheaper(0.9) is None


def test_a_layer_without_a_score_is_named():
    equal = {**LAYERS, "dead": np.ones((N, 2))}
    with pytest.warns(UserWarning, match="data, layer dead: The embeddings are equal for all 60"):
        board = dm.layers(equal, CLASSES)
    assert board.arms[-1].mean is None
    with pytest.raises(DataError, match="No layer has a score on data: layer dead"):
        dm.layers({"dead": equal["dead"]}, CLASSES)


def test_only_the_layer_that_is_scored_is_read():
    reads = []

    class Lazy(dict):
        def __getitem__(self, name):
            reads.append(name)
            return super().__getitem__(name)

    dm.layers(Lazy(LAYERS), CLASSES)
    assert reads == [*LAYERS, *LAYERS]  # to be checked, and to be scored


def holed(count):
    raw = LAYERS["raw"].copy()
    raw[7 : 7 + count, 1] = [np.nan, np.inf][:count]
    return {**LAYERS, "raw": raw}


PAIRS = pandas.DataFrame({"first": range(20), "second": range(1, 21), "score": range(20)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: dm.layers(LAYERS, CLASSES[:50]),
            "Got 50 labels for 60 vectors. Give one for each",
        ),
        (lambda: dm.layers(LAYERS, []), "the table has no rows"),
        (
            lambda: dm.layers(holed(2), CLASSES),
            r"'raw' has NaN or infinity in 2 of 60 vectors \(the first: 7\). Correct them",
        ),
        (
            lambda: dm.layers(STACK[:, 0], CLASSES),
            r"Got a ndarray of shape \(60, 4\)\. Give numbers",
        ),
        (lambda: dm.layers(STACK[..., None], CLASSES), r"of shape \(60, 3, 4, 1\).* pooled over"),
        (lambda: dm.layers({}, CLASSES), r"Got a dict of shape 0\. Give"),
        (lambda: dm.layers(STACK[:, :0], CLASSES), r"of shape \(60, 0, 4\)\. Give"),
        (lambda: dm.layers({"raw": STACK}, CLASSES), r"'raw' has the shape \(60, 3, 4\)"),
        (lambda: dm.layers(STACK[:0], []), r"'0' has the shape \(0, 4\) and type float32\. Give"),
        (lambda: dm.layers({"raw": NAMES[:, None]}, CLASSES), r"type <U3\. Give numbers"),
        (lambda: dm.layers({"raw": STACK[:, 0].astype(object)}, CLASSES), r"type object\. Give"),
        (lambda: dm.layers({"raw": [[1.0], [1.0, 2.0]]}, CLASSES), "'raw' cannot be read: Value"),
        (lambda: dm.layers({"raw": STACK[:, 0] + 1j}, CLASSES), r"type complex64\. Give"),
        (lambda: dm.layers({1: LAYERS["raw"], "1": LAYERS["raw"]}, CLASSES), "Two layers have one"),
        (
            lambda: dm.layers({**LAYERS, "raw": LAYERS["raw"][:59]}, CLASSES),
            "'raw' has 59, 'conv2' has 60, 'conv10' has 60. Row i of each",
        ),
        (lambda: dm.layers(STACK, PAIRS.assign(second=99)), r"got 'vector 99'; .* 0 to 59, in the"),
        (lambda: dm.layers(STACK, PAIRS.assign(first=-1.0)), "got 'vector -1'; wanted"),
        (lambda: dm.layers(STACK, CLASSES, readouts={"pooling": "mean"}), "'mean' pools, and vec"),
        (lambda: dm.layers(STACK, CLASSES, readouts={"dimensions": 9}), "keeps 9 dimensions"),
        (lambda: dm.layers(STACK, CLASSES, pooling="mean"), "as they are: leave out pooling"),
        (lambda: dm.layers(STACK, CLASSES, tokenizer=3), "as they are: leave out tokenizer"),
        (lambda: dm.layers(LAYERS, CLASSES, layers=["conv"]), "'conv'. Did you mean 'conv2'"),
        (lambda: dm.layers(STACK, CLASSES, layers="blocks"), "'blocks'. Valid: 0, 1, 2"),
        (lambda: dm.layers(STACK, CLASSES, layers=7), "'7'. Valid: 0, 1, 2"),
        (lambda: dm.layers(STACK, "labels.csv"), "'labels.csv' does not exist"),
        (lambda: dm.layers("gone.npz", CLASSES), "The vectors 'gone.npz' do not exist"),
        (lambda: dm.layers("gone.zarr", CLASSES), "The vectors 'gone.zarr' do not exist"),
        (lambda: dm.layers([STACK], CLASSES), r"Layer '0' has the shape \(60, 3, 4\)"),
        (lambda: dm.layers(STACK, 3), "Got 1 labels for 60 vectors"),
        (lambda: dm.layers(STACK, np.eye(60)), "Data of type ndarray cannot be read"),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_remedy(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.parametrize("name", ["a.npz", "b.npy"])
def test_files_of_pickles_are_refused_with_the_remedy(name, tmp_path):
    save = np.savez if name == "a.npz" else np.save
    save(tmp_path / name, np.array([{"a": 1}], dtype=object))
    with pytest.raises(ConfigError, match=r"allow_pickle=False.*Give numbers of shape|Python obj"):
        dm.layers(tmp_path / name, CLASSES)


def test_the_command_scores_a_file_of_vectors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("states.npz", **LAYERS)
    pandas.DataFrame({"species": NAMES}).to_csv("labels.csv", index=False)
    words = ["layers", "--vectors", "states.npz", "--data", "labels.csv", "--label", "species"]
    shown = CliRunner().invoke(main, words).output
    assert "Layers of states@main" in shown and "--save" not in shown
    rows = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["layers"]
    assert {row["layer"]: row["mean"] for row in rows} == pytest.approx(
        means(dm.layers(LAYERS, NAMES))
    )
    for more, message in (
        (["model"], "Give either models, or --vectors"),
        (["--save", "x"], "no model to save"),
        (["--task", "stdlib:order"], "needs --data"),
        (["--vectors", "gone.npz"], "The vectors 'gone.npz' do not exist."),
        (["--vectors", "labels.csv"], "--vectors reads .npz, .npy or Zarr, and 'labels.csv'"),
    ):
        wrong = CliRunner().invoke(main, [*words, *more])
        assert wrong.exit_code == 2 and message in " ".join(wrong.output.split())


def test_the_remedy_for_labels_that_are_numbers_is_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("states.npy", STACK)
    pandas.DataFrame({"mass": np.linspace(0, 1, len(NAMES))}).to_csv("labels.csv", index=False)
    words = ["layers", "--vectors", "states.npy", "--data", "labels.csv"]
    refused = CliRunner().invoke(main, [*words, "--label", "mass"])
    assert "For a regression, they are grades: grade=mass" in refused.output
    scored = CliRunner().invoke(main, [*words, "--columns", "grade=mass"])
    assert scored.exit_code == 0 and "spearman of 60 items" in scored.output


def test_a_gain_over_a_tied_layer_is_within_the_error():
    labels = np.tile([0, 1], 60)
    rng = np.random.default_rng(0)
    common = rng.normal(size=(120, 1, 4)) + labels[:, None, None]
    board = dm.layers(common + 0.5 * rng.normal(size=(120, 12, 4)), labels)
    best = board.arms[0].arm
    (last,) = (row for row in board.arms if row.arm.layer == 11)
    assert last.tied and board.found.gain(best).relation == "beyond the error"
    assert "within the error of choosing among 12" in repr(board).replace("\n", " ")
    assert "Cheaper: layer 0: an earlier layer, loses" in repr(board)
