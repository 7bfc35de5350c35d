"""Layers of foreign encoders are scored as the user's own script would score them."""

from __future__ import annotations

import json
import wave
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import daskmetrics as dm
from daskmetrics import config, experiment
from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.keys import seed_of
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read
from daskmetrics.execution.map.function import load
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment.encoders import encoder_revisions
from tests.cli.calling import start

N = 120
PIXELS, DIGITS = (values[:N] for values in load_digits(n_class=4, return_X_y=True))
LABELS = np.array([f"digit {digit}" for digit in DIGITS])


@pytest.fixture
def scans(tmp_path, monkeypatch):
    """A table of pictures of digits, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/pictures").mkdir(parents=True)
    names = [f"pictures/{i}.png" for i in range(N)]
    for name, pixels in zip(names, PIXELS, strict=True):
        picture = Image.fromarray((pixels.reshape(8, 8) * 15).astype(np.uint8))
        picture.save(tmp_path / "data" / name)
    table = pandas.DataFrame({"file": names, "grade": LABELS})
    table.to_csv(tmp_path / "data/scans.csv", index=False)
    return tmp_path / "data/scans.csv"


@pytest.fixture
def texts():
    """A table of texts that stand for the digits, by number."""
    return pandas.DataFrame({"text": [f"digit {i}" for i in range(N)], "label": LABELS})


def pixels_of(texts):
    return PIXELS[[int(text.split()[1]) for text in texts]]


def scores(board):
    frame = board.to_frame()
    return dict(zip(zip(frame.checkpoint, frame.layer, strict=True), frame["mean"], strict=True))


def means(board):
    return {layer: mean for (_, layer), mean in scores(board).items()}


def accuracy(vectors, board):
    """The accuracy of a cross-validated probe, by scikit-learn alone."""
    (task,) = board.found.tasks
    seed = seed_of("score", task.key, 0) % 2**32
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.03, max_iter=2000))
    return (cross_val_predict(probe, vectors, LABELS, cv=folds) == LABELS).mean()


def of_arrays(make_layers):
    """An encoder of the texts, from a function of pixels."""
    return dm.Encoder(lambda checkpoint, device: lambda texts: make_layers(pixels_of(texts)))


def test_components_of_scikit_learn_score_as_in_scikit_learn(texts):
    fitted = {f"pca{k}": PCA(k, random_state=0).fit(PIXELS) for k in (2, 8, 20)}
    board = dm.layers(
        of_arrays(lambda x: {name: pca.transform(x) for name, pca in fitted.items()}), texts
    )
    for name, pca in fitted.items():
        vectors = pca.transform(PIXELS).astype(np.float32)
        assert means(board)[name] == pytest.approx(accuracy(vectors, board), abs=1e-12)
    assert means(board) == means(
        dm.layers(
            {name: pca.transform(PIXELS).astype(np.float32) for name, pca in fitted.items()},
            texts,
        )
    )


class Network(nn.Module):
    """A convolution, of which each pixel has a vector, and a dense layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc = nn.Linear(6 * 36, 10)

    def forward(self, x):
        maps = torch.relu(self.conv(x))
        return {"conv": maps.flatten(2).transpose(1, 2), "fc": self.fc(maps.flatten(1))}


def network(checkpoint, device):
    net = Network().eval()
    net.load_state_dict(torch.load(checkpoint, weights_only=True))
    return lambda pictures: net(batch_of(pictures))


def batch_of(pictures):
    grey = [np.asarray(picture.convert("L"), np.float32)[None] / 240 for picture in pictures]
    return torch.tensor(np.stack(grey))


def test_checkpoints_are_scored_in_the_order_of_training(scans, tmp_path):
    states = {}
    for step in (100, 20, 3):
        torch.manual_seed(step)
        states[step] = Network().state_dict()
        torch.save(states[step], tmp_path / f"step{step}.pth")
    encoder = dm.Encoder(network, checkpoints="step*.pth", items="image", batch_size=50)
    board = dm.layers(encoder, scans, item="file", label="grade")
    assert [name.revision for name in board.found.suites] == ["step3", "step20", "step100"]
    for step, state in states.items():
        net = Network()
        net.load_state_dict(state)
        pictures = torch.tensor(PIXELS.reshape(-1, 1, 8, 8) * 15, dtype=torch.float32) / 240
        with torch.no_grad():
            layers = net(pictures)
        for name, vectors in (("conv", layers["conv"].mean(1)), ("fc", layers["fc"])):
            expected = accuracy(vectors.numpy(), board)
            assert scores(board)[f"step{step}", name] == pytest.approx(expected, abs=0.01)
    assert "network@step" in str(board) and "/fc" in str(board)


def test_a_checkpoint_may_be_a_folder_or_named_by_one(tmp_path):
    for name in ("runs/step10/model.pt", "runs/step9/model.pt", "runs/v1.5/model.pt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    made = encoder_revisions(dm.Encoder(network, checkpoints=tmp_path / "runs/*/model.pt"))
    assert [revision.name for revision in made] == ["step9/model", "step10/model", "v1.5/model"]
    made = encoder_revisions(dm.Encoder(network, checkpoints=tmp_path / "runs/*"))
    assert [revision.name for revision in made] == ["step9", "step10", "v1.5"]
    assert made[0].path == tmp_path / "runs/step9"


TOKENS = PIXELS.reshape(N, 8, 8).astype(np.float32)
MASK = np.arange(8) < 1 + DIGITS[:, None]


class OnlyDlpack:
    """An array of a library that NumPy does not know."""

    def __init__(self, array):
        self.array = array
        self.shape = array.shape

    def __dlpack__(self, **settings):
        return self.array.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize(
    ("make_layers", "expected"),
    [
        (lambda i: PIXELS[i], {0: PIXELS}),
        (lambda i: TOKENS[i], {0: TOKENS.mean(1)}),
        (lambda i: [PIXELS[i], TOKENS[i]], {0: PIXELS, 1: TOKENS.mean(1)}),
        (lambda i: (PIXELS[i], TOKENS[i]), {0: PIXELS, 1: TOKENS.mean(1)}),
        (lambda i: (TOKENS[i], TOKENS[i, :, 3]), {0: TOKENS.mean(1), 1: TOKENS[:, :, 3]}),
        (lambda i: {7: PIXELS[i].astype(int)}, {"7": PIXELS}),
        (lambda i: {"a": torch.tensor(TOKENS[i]).requires_grad_()}, {"a": TOKENS.mean(1)}),
        (lambda i: torch.tensor(TOKENS[i]).bfloat16(), {0: TOKENS.mean(1)}),
        (lambda i: OnlyDlpack(PIXELS[i]), {0: PIXELS}),
        (lambda i: PIXELS[i].tolist() and [PIXELS[i].tolist()], {0: PIXELS}),
        (lambda i: (TOKENS[i], MASK[i]), {0: "masked"}),
        (lambda i: (torch.tensor(TOKENS[i]), MASK[i].astype(int)), {0: "masked"}),
        (
            lambda i: ({"tokens": TOKENS[i], "all": PIXELS[i]}, torch.tensor(MASK[i])),
            {"tokens": "masked", "all": PIXELS},
        ),
    ],
)
def test_layers_may_have_any_form(make_layers, expected, texts):
    def make(checkpoint, device):
        assert checkpoint is None and device in ("cpu", "cuda")
        return lambda items: make_layers([int(item.split()[1]) for item in items])

    board = dm.layers(dm.Encoder(make), texts)
    masked = (TOKENS * MASK[..., None]).sum(1) / MASK.sum(1)[:, None]
    given = {
        name: np.float32(masked if isinstance(vectors, str) else vectors)
        for name, vectors in expected.items()
    }
    assert means(board) == means(dm.layers(given, texts))


def test_memory_that_a_function_uses_again_is_copied(texts):
    kept = np.empty((32, 64), np.float32)

    def into_kept(pixels):
        kept[: len(pixels)] = pixels - pixels.mean(0)
        return torch.from_numpy(kept[: len(pixels)])

    with pytest.raises(DataError, match="depends on its batch"):
        dm.layers(of_arrays(into_kept), texts)


def test_vectors_in_files_are_those_in_memory(texts, monkeypatch):
    encoder = of_arrays(lambda x: {"wide": x, "narrow": x[:, 20:30]})
    in_memory = means(dm.layers(encoder, texts))
    monkeypatch.setattr("daskmetrics.experiment._worker.MEMORY", 0)
    assert means(dm.layers(encoder, texts)) == in_memory


def test_an_encoder_of_texts_is_compared_with_a_model(minilm):
    from sentence_transformers import SentenceTransformer

    def sentences(checkpoint, device):
        model = SentenceTransformer(str(minilm), device="cpu")
        return lambda texts: {"whole": model.encode(texts, convert_to_tensor=True)}

    topics = {"bread": "baked in an oven", "code": "compiled to run", "rain": "falls on roofs"}
    rows = [
        (f"{name} number {i} is {what}", name) for i in range(12) for name, what in topics.items()
    ]
    frame = pandas.DataFrame(rows, columns=["text", "label"])
    board = dm.layers([minilm, dm.Encoder(sentences)], frame, columns={"kind": "clustering"})
    own = scores(board)["main", "whole"]
    assert own == pytest.approx(scores(board)["main", 6], abs=1e-9)
    with pytest.raises(ConfigError, match="Got vectors or an encoder"):
        dm.layers(dm.Encoder(sentences), frame).save("saved")


def test_a_vision_transformer_is_read_at_all_layers(scans):
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    net = ViTModel(
        ViTConfig(**shape, num_hidden_layers=3, image_size=8, patch_size=2, num_channels=1)
    ).eval()

    def vit(checkpoint, device):
        return lambda pictures: net(batch_of(pictures), output_hidden_states=True).hidden_states

    board = dm.layers(dm.Encoder(vit, items="image"), scans, "file", "grade")
    with torch.no_grad():
        pictures = torch.tensor(PIXELS.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
        states = net(pictures, output_hidden_states=True).hidden_states
    assert means(board) == pytest.approx(
        {i: accuracy(state.mean(1).numpy(), board) for i, state in enumerate(states)}, abs=0.01
    )


def test_a_network_of_timm_is_read_at_all_layers(scans):
    timm = pytest.importorskip("timm")

    def vit(checkpoint, device):
        net = timm.create_model("vit_tiny_patch16_224", img_size=32).eval().to(device)

        def encode(pictures):
            batch = torch.nn.functional.interpolate(batch_of(pictures), 32).repeat(1, 3, 1, 1)
            return net.forward_intermediates(batch, output_fmt="NLC", intermediates_only=True)

        return encode

    board = dm.layers(dm.Encoder(vit, items="image"), scans, "file", "grade", layers=[0, 11])
    assert {*means(board)} == {0, 11} and max(means(board).values()) > 0.5


def test_an_onnx_graph_is_an_encoder(texts, tmp_path):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from onnx import helper

    weights = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 64])],
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 5])
            for name in ("h", "y")
        ],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())

    def session(checkpoint, device):
        loaded = runtime.InferenceSession(checkpoint, providers=["CPUExecutionProvider"])
        return lambda texts: loaded.run(None, {"x": pixels_of(texts).astype(np.float32)})

    board = dm.layers(dm.Encoder(session, checkpoints=path), texts)
    hidden = PIXELS.astype(np.float32) @ weights
    expected = {0: accuracy(hidden, board), 1: accuracy(np.maximum(hidden, 0), board)}
    assert means(board) == pytest.approx(expected, abs=0.01)


def test_a_function_of_jax_is_an_encoder(texts):
    jax = pytest.importorskip("jax")
    board = dm.layers(of_arrays(lambda x: jax.numpy.asarray(x, jax.numpy.float32)), texts)
    assert means(board) == {0: accuracy(np.float32(PIXELS), board)}


@pytest.mark.parametrize("kind", ["path", "array", "audio"])
def test_files_are_read_as_what_they_hold(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i, pixels in enumerate(PIXELS):
        np.save(f"{i}.npy", pixels)
        with wave.open(f"{i}.wav", "wb") as file:
            file.setparams((2, 2, 8000, 0, "NONE", ""))
            file.writeframes(np.repeat(pixels * 1000, 2).astype("<i2").tobytes())
    suffix = "wav" if kind == "audio" else "npy"
    names = [f"{i}.{suffix}" for i in range(N)]
    frame = pandas.DataFrame({"text": names, "label": LABELS})

    def one(item):
        if kind == "audio":
            samples, rate = item
            assert samples.dtype == np.float32 and rate == 8000
            return samples * 2**15 / 1000
        return np.load(item) if kind == "path" else item

    def make(checkpoint, device):
        return lambda items: np.stack(list(map(one, items)))

    board = dm.layers(dm.Encoder(make, items=kind), frame)
    assert means(board)[0] == pytest.approx(accuracy(np.float32(PIXELS), board), abs=0.01)


def test_a_changed_picture_is_another_item(scans):
    encoder = dm.Encoder(
        lambda checkpoint, device: lambda pictures: batch_of(pictures).flatten(1), items="image"
    )

    def key():
        return dm.layers(encoder, scans, "file", "grade").found.tasks[0].key

    before = key()
    assert key() == before
    Image.new("L", (8, 8), 9).save(scans.parent / "pictures/3.png")
    assert key() != before


def test_a_picture_that_changes_meanwhile_is_noticed(scans):
    def make(checkpoint, device):
        def encode(pictures):
            Image.new("L", (8, 8), 9).save(scans.parent / "pictures/3.png")
            return batch_of(pictures).flatten(1)

        return encode

    with pytest.raises(DataError, match="that 'scans' names was written again since"):
        dm.layers(dm.Encoder(make, items="image"), scans, item="file", label="grade")


def test_a_table_in_memory_names_files_of_the_current_folder(configured, scans, tmp_path):
    frame = pandas.DataFrame(
        {"file": [f"data/pictures/{i}.png" for i in range(N)], "label": LABELS}
    )
    task = {"data": frame, "item": "file"}
    models = [configured().models[0].model_dump(exclude_unset=True)]
    arguments = {"models": models, "tasks": [task]}
    prepared = experiment.prepare(experiment.configured(None, arguments, [], tmp_path / "run")[0])
    assert vectors_of(prepared, 2, tmp_path).shape == (N, 64)
    arguments["tasks"] = [frame.rename(columns={"file": "Text"})]
    again = experiment.prepare(experiment.configured(None, arguments, [], tmp_path / "run")[0])
    assert again.tasks[0].key == prepared.tasks[0].key


def drawn(x):
    return x + np.random.default_rng().normal(size=x.shape)


@pytest.mark.parametrize(
    ("make_layers", "message"),
    [
        (lambda x: x[:-1], r"returned an array of shape \(7, 64\) as layer '0' of 8 items\. Ret"),
        (lambda x: x[..., None, None], r"shape \(8, 64, 1, 1\) as layer '0' of 8 items"),
        (lambda x: {"a": x[:, :0]}, r"shape \(8, 0\) as layer 'a'"),
        (lambda x: x[0], r"shape \(64,\)"),
        (lambda x: {}, r"returned layers of the widths \{\}"),
        (lambda x: None, r"fails: TypeError: it returned object\. Return an array"),
        (lambda x: "vectors", "fails: TypeError: it returned <U7. Return"),
        (lambda x: 1j * x, "it returned complex128"),
        (lambda x: 1 / 0, r"The encoder 'lambda' fails: ZeroDivisionError: division by zero\."),
        (lambda x: x[:, : len(x)], r"widths \{0: 1\}, after \{0: 8\}\. Return"),
        (
            drawn,
            r"gives other numbers the second time: the vector of 'digit 0' changes by [0-9.]+%",
        ),
        (lambda x: x - x.mean(0), r"depends on its batch: the vector of 'digit 0' changes by "),
        (
            lambda x: {"a": x, "b": nn.BatchNorm1d(64)(torch.tensor(x).float())},
            "'b' .*cannot|fails: ValueError: Expected more than 1 value per channel",
        ),
        (lambda x: x * np.nan, "No layer has a score on data: layer 0: .* not finite"),
    ],
)
def test_an_encoder_that_is_wrong_is_an_error(make_layers, message, texts):
    with pytest.raises(DataError, match=message):
        dm.layers(of_arrays(make_layers), texts)


def raising(checkpoint, device):
    raise RuntimeError("no such file")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda t, s: dm.layers(dm.Encoder(raising), t),
            "'raising' cannot be made: RuntimeError: no",
        ),
        (lambda t, s: dm.layers(dm.Encoder(lambda c, d: None), t), "returned a NoneType. Return a"),
        (lambda t, s: dm.layers(dm.Encoder(lambda c: None), t), "cannot be made: TypeError"),
        (
            lambda t, s: dm.Encoder("vit"),
            r"needs a function make\(checkpoint, device\), but got 'v",
        ),
        (lambda t, s: dm.Encoder(raising, items="video"), "Unknown items of an encoder 'video'"),
        (lambda t, s: dm.Encoder(raising, batch_size=0), "batch_size is 0. Give at least 1"),
        (
            lambda t, s: dm.layers(dm.Encoder(raising, checkpoints="out/*.pth"), t),
            r"No file or folder matches '.*out/\*\.pth', the checkpoints of 'raising'. Correct",
        ),
        (
            lambda t, s: dm.layers(dm.Encoder(raising, items="image"), t),
            r"'data' names 'digit 0', and there is no file '.*digit 0'\. Write paths",
        ),
        (
            lambda t, s: dm.layers(dm.Encoder(raising), t, "text", item="text"),
            "text=text and item=text both name the items: give one",
        ),
        (
            lambda t, s: dm.layers(dm.Encoder(raising, items="image"), ["stdlib:order"]),
            "reads files, and 'stdlib:order' has texts. Give a table",
        ),
        (
            lambda t, s: dm.layers([dm.Encoder(raising), dm.Encoder(raising, items="path")], t),
            "several kinds: path and text. Compare",
        ),
        (
            lambda t, s: dm.layers(of_arrays(lambda x: {"a": x}), t, layers=["b"]),
            "Unknown layer of 'lambda' 'b'. Valid: a",
        ),
        (
            lambda t, s: dm.layers(of_arrays(np.array), t, readouts={"pooling": "mean"}),
            "'mean' pools, and vectors are pooled already",
        ),
        (lambda t, s: dm.layers(of_arrays(np.array), t, dtype="float16"), "leave out dtype"),
        (
            lambda t, s: dm.layers(of_arrays(np.array), t, readouts={"dimensions": 100}),
            "keeps 100 dimensions",
        ),
        (
            lambda t, s: dm.layers(
                dm.Encoder(lambda c, d: list, items="array"), s, "file", "grade"
            ),
            r"pictures/0\.png' cannot be read as array: ValueError",
        ),
    ],
)
def test_a_wrong_argument_is_an_error_with_the_remedy(call, message, texts, scans):
    with pytest.raises((ConfigError, DataError), match=message):
        call(texts, scans)


def test_an_unreadable_picture_is_named(scans):
    (scans.parent / "pictures/3.png").write_bytes(b"no picture")
    encoder = dm.Encoder(
        lambda checkpoint, device: lambda pictures: batch_of(pictures).flatten(1), items="image"
    )
    with pytest.raises(DataError, match=r"pictures/3\.png' cannot be read as image: Unid"):
        dm.layers(encoder, scans, "file", "grade")


OWN = """
from pathlib import Path

import numpy as np


def greys(checkpoint, device):
    scale = float(Path(checkpoint).read_text()) if checkpoint else 1.0
    return lambda pictures: {
        "corner": np.stack([np.asarray(p.convert("L"))[:3, :3].ravel() * scale for p in pictures]),
        "all": np.stack([np.asarray(p.convert("L")).ravel() * scale for p in pictures]),
    }
"""


def test_the_command_scores_a_function_of_a_file(scans, tmp_path):
    (tmp_path / "greyscale.py").write_text(OWN)
    for step in (2, 10):
        (tmp_path / f"step{step}.txt").write_text(str(step))
    words = ["layers", "--encoder", "greyscale.py:greys", "--items", "image"]
    words += ["--data", str(scans), "--item", "file", "--label", "grade"]
    shown = CliRunner().invoke(main, [*words, "--json"])
    rows = json.loads(shown.stdout)["layers"]
    assert [row["layer"] for row in rows] == ["all", "corner"]
    shown = CliRunner().invoke(main, [*words, "--checkpoints", "step*.txt"]).output
    assert "greys@step10/all" in shown and "--save" not in shown
    for more, message in (
        (["model"], "Give either models, or --vectors"),
        (["--save", "x"], "no model to save"),
        (["--items", "video"], "Did you mean|Unknown items of an encoder 'video'"),
        (["--encoder", "greyscale.py:grey"], "Did you mean 'greys'"),
        (["--encoder", "gone.py:greys"], "gone.py' does not exist"),
        (["--checkpoints", "gone*"], "No file or folder matches"),
    ):
        wrong = CliRunner().invoke(main, [*words, *more])
        assert wrong.exit_code == 2
        assert any(part in " ".join(wrong.output.split()) for part in message.split("|")), message
    alone = CliRunner().invoke(main, ["layers", "m", "--data", str(scans), "--checkpoints", "x"])
    assert "--checkpoints are those of --encoder" in alone.output


# on the workers of a run

RUN = {
    "name": "scans",
    "models": [{"name": "greys", "encoder": "greys_of.py:greys", "checkpoints": "step*.txt"}],
    "tasks": ["file:data/scans.csv(item=file, label=grade)"],
    "cluster": {"workers": 2},
}
RUN["models"][0]["items"] = "image"


@pytest.fixture
def configured(scans, tmp_path):
    """The configuration of a run with an encoder of its own, with changes of the model."""
    number = len(list(tmp_path.parent.glob("*")))  # a module of its own for each test
    module = f"greys_{abs(hash(str(tmp_path)))}_{number}"
    (tmp_path / f"{module}.py").write_text(OWN)
    for step in (2, 10):
        (tmp_path / f"step{step}.txt").write_text(str(step))

    def make(**changes):
        model = {**RUN["models"][0], "encoder": f"{module}.py:greys", **changes}
        return config.parse({**RUN, "models": [model]}, where="test")

    return make


def vectors_of(prepared, step, scratch, layer=1):
    checkpoint = next(name for name in prepared.readers if name.step == step)
    (task,) = prepared.tasks
    layers = prepared.plan.by_model[checkpoint.model].layers
    spec = worker.EncodeSpec("key", task, layers, scratch)
    return worker.encode(prepared.readers[checkpoint], spec).at(layer)


def test_a_worker_reads_one_checkpoint_after_the_other(configured, tmp_path):
    prepared = experiment.prepare(configured())
    (suite,) = prepared.plan.suites
    assert (suite.revisions, suite.layer_names) == (("step2", "step10"), ("corner", "all"))
    two, ten, again = (vectors_of(prepared, step, tmp_path) for step in (2, 10, 2))
    assert two.shape == (N, 64) and np.array_equal(two * 5, ten) and np.array_equal(two, again)
    assert vectors_of(prepared, 10, tmp_path, layer=0).shape == (N, 9)
    (tmp_path / "step10.txt").write_text("11")
    vectors_of(prepared, 2, tmp_path)
    with pytest.raises(DataError, match=r"step10\.txt' was written again since the run began"):
        vectors_of(prepared, 10, tmp_path)


def test_keys_follow_from_code_and_content_alone(configured, tmp_path):
    def keys(**changes):
        return experiment.prepare(configured(**changes)).plan.encodings

    before = keys()
    assert keys(batch_size=5, layers=["all"]) == before
    assert before != keys(version="1") != keys(version="2") == keys(version="2")
    stem = configured().models[0].encoder.partition(".")[0]
    (tmp_path / f"{stem}_b.py").write_text(OWN)
    assert keys(encoder=f"{stem}_b.py:greys", version="1") != keys(version="1")
    (tmp_path / "step10.txt").write_text("11")
    after = keys()
    assert after["greys@step2"] == before["greys@step2"]
    assert after["greys@step10"] != before["greys@step10"]
    (tmp_path / "step10.txt").write_text("10")
    assert keys() == before


def test_checkpoints_with_other_layers_are_an_error(configured, tmp_path):
    prepared = experiment.prepare(configured())
    readers = {
        name: replace(reader, layers=("corner", "all", "third"))
        for name, reader in prepared.readers.items()
    }
    with pytest.raises(DataError, match=r"has the layers \['corner', 'all'\], and the first"):
        vectors_of(replace(prepared, readers=readers), 2, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "gone.py:greys"}, "gone.py' does not exist"),
        ({"encoder": "greys"}, "'greys' is not a reference to a function"),
        ({"checkpoints": "gone*"}, "No file or folder matches"),
        ({"revisions": ["step3"]}, "Revision 'step3' does not exist. Available: step2, step10"),
        ({"layers": ["al"]}, "Unknown layer of 'greys' 'al'. Did you mean 'all'"),
        ({"layers": "blocks"}, "Unknown layer of 'greys' 'blocks'. Valid: all, corner"),
        ({"items": "video"}, "write 'text', 'path'"),
        ({"items": "text"}, "cannot be made|fails"),
        ({"pooling": "mean"}, "has an encoder: leave out pooling"),
        ({"readouts": {"pooling": "mean"}}, "'mean' pools"),
        ({"source": "gpt2"}, "needs one of 'source', 'train' and 'encoder'"),
        ({"encoder": None, "source": "gpt2"}, "has no encoder: leave out checkpoints, items"),
    ],
)
def test_a_wrong_configuration_is_an_error_before_it_starts(configured, changes, message):
    with pytest.raises((ConfigError, DataError), match=message):
        experiment.prepare(configured(**changes))


def test_encoders_have_no_metrics_and_texts_no_names_of_layers(configured):
    assert configured().metrics == ()
    text = {"name": "m", "source": "gpt2"}
    assert config.parse({"name": "x", "models": [text]}, where="test").metrics
    for model, metrics, message in (
        (RUN["models"][0], ["curvature"], "has an encoder, which reads no prompts: leave out 'met"),
        ({**text, "layers": ["all", 3]}, [], "has no encoder: leave out names of layers"),
    ):
        with pytest.raises(ConfigError, match=message):
            config.parse({"name": "x", "models": [model], "metrics": metrics}, where="test")


def score_records(journal):
    entries = (entry for entry in read(journal) if isinstance(entry, Record))
    return [record for record in entries if record.kind == "score"]


@pytest.mark.slow
def test_a_run_resumes_and_scores_edited_code_again(scans, tmp_path):
    (tmp_path / "greys_of.py").write_text(OWN)
    (tmp_path / "run.yaml").write_text(json.dumps(RUN))
    for step in (2, 10, 30):
        (tmp_path / f"step{step}.txt").write_text(str(step))
    (tmp_path / "step30.txt").write_text("no number")
    done = start(tmp_path, "run run.yaml")
    assert done.returncode == 0, done.stderr
    assert "of greys_of.py:greys" in done.stdout and "--save" not in done.stdout
    journal = tmp_path / "runs/scans/journal.jsonl"
    first = score_records(journal)
    direct = dm.layers(
        dm.Encoder(load("greys_of.py:greys"), "step[12]*.txt", items="image", name="greys"),
        "data/scans.csv",
        "file",
        "grade",
    )
    run = dm.open(tmp_path / "runs/scans")
    frame = run.leaderboard().to_frame().set_index(["checkpoint", "layer"])["mean"].dropna()
    assert frame.to_dict() == scores(direct)
    assert "Use      greys, step 2, layer all: accuracy" in done.stdout
    failed = [unit for unit in first if not unit.ok]
    assert {unit.status for unit in failed} == {"error"}
    assert all("ValueError: could not convert string to float" in unit.reason for unit in failed)
    with pytest.raises(ConfigError, match="your own function: call it"):
        run.best().load()
    assert "Nothing to do" in start(tmp_path, "run run.yaml").stdout
    (tmp_path / "greys_of.py").write_text(OWN + "\n# a comment changes nothing\n")
    assert "Nothing to do" in start(tmp_path, "run run.yaml").stdout
    (tmp_path / "greys_of.py").write_text(OWN.replace(":3, :3", ":4, :4"))
    edited = start(tmp_path, "run run.yaml")
    assert edited.returncode == 0
    assert "greys_of.py:greys: Its code has changed. What it gave is computed" in edited.stderr
    again = score_records(journal)[len(first) :]
    assert len([unit for unit in again if unit.ok]) == 4
