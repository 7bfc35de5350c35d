"""What the trainers of transformers and sentence-transformers write is read as they would read it."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

import daskmetrics as dm
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.models import Encoder, LoadedModel

TEXTS = ["one text", "another text, a longer one", "the third"]


@pytest.fixture
def arguments(tmp_path):
    def make(kind):
        return kind(
            output_dir=str(tmp_path / "out"),
            max_steps=4,
            save_steps=2,
            learning_rate=1e-3,
            per_device_train_batch_size=2,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )

    return make


def encoders(folder):
    model = Model(name="m", source=str(folder))
    located = checkpoints.locate(model)
    assert located.suite.revisions == ("checkpoint-2", "checkpoint-4") and located.warnings == ()
    for location in located.locations:
        read = protocol_of(Protocol(), model, checkpoints.folder_of(location))
        with Encoder(
            LoadedModel(location, read.base, "cpu"), read, located.suite.layers
        ) as encoder:
            yield location.path, encoder


@pytest.mark.filterwarnings("ignore")  # of the trainer
def test_checkpoints_of_transformers_without_a_tokenizer_have_that_of_their_suite(
    tmp_path, minilm, arguments
):
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    config = AutoConfig.for_model("gpt_neox", vocab_size=len(tokenizer), **sizes)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(1000, 2000, (8, 6))]
    Trainer(
        AutoModelForCausalLM.from_config(config), arguments(TrainingArguments), train_dataset=rows
    ).train()
    assert not list((tmp_path / "out" / "checkpoint-2").glob("tokenizer*"))
    tokenizer.save_pretrained(tmp_path / "out")
    vectors = []
    for path, encoder in encoders(tmp_path / "out"):
        reference = AutoModelForCausalLM.from_pretrained(path).base_model.eval()
        with torch.inference_mode():
            states = [
                reference(**tokenizer(t, return_tensors="pt")).last_hidden_state[0].mean(0)
                for t in TEXTS
            ]
        vectors.append(encoder.encode(TEXTS))
        np.testing.assert_allclose(vectors[-1], torch.stack(states), atol=1e-5)
        place = checkpoints.recorded(Location(path, None, ""))
        assert place["tokenizer"] == str(tmp_path / "out")
    assert abs(vectors[0] - vectors[1]).max() > 1e-4
    for file in (tmp_path / "out" / "checkpoint-4").glob("*.*"):
        shutil.copy(file, tmp_path / "out")  # as the trainer saves the model with which it ends
    np.testing.assert_allclose(dm.embed(tmp_path / "out", TEXTS)[:, -1], vectors[-1], atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_checkpoints_of_sentence_transformers_are_read_as_shipped(tmp_path, minilm, arguments):
    pytest.importorskip("sentence_transformers", reason="needs the extra 'mteb'")
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import CosineSimilarityLoss

    model = SentenceTransformer(str(minilm), device="cpu")
    data = Dataset.from_dict({"a": TEXTS, "b": TEXTS[::-1], "label": [0.1, 1.0, 0.1]})
    given = arguments(SentenceTransformerTrainingArguments)
    SentenceTransformerTrainer(
        model, given, train_dataset=data, loss=CosineSimilarityLoss(model)
    ).train()
    for path, encoder in encoders(tmp_path / "out"):
        assert encoder.protocol.summary.startswith("as shipped (mean, normalize)")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = SentenceTransformer(path, device="cpu").encode(TEXTS)
        np.testing.assert_allclose(encoder.encode(TEXTS), wanted, atol=1e-5)
