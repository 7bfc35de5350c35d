"""What the trainer of transformers writes is read as it would read it."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

import daskmetrics as dm
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.models import LoadedModel, TextEncoder
from tests.models.architectures import SMALL

TEXTS = ["one text", "another text, a longer one", "the third"]


@pytest.mark.filterwarnings("ignore")  # of the trainer
def test_checkpoints_without_tokenizer_have_that_of_their_suite(tmp_path, minilm):
    out = tmp_path / "out"
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    sizes = {**SMALL, "vocab_size": len(tokenizer), "num_hidden_layers": 2}
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt_neox", **sizes))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(1000, 2000, (8, 6))]
    arguments = TrainingArguments(
        output_dir=str(out),
        max_steps=4,
        save_steps=2,
        learning_rate=1e-3,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    Trainer(network, arguments, train_dataset=rows).train()
    assert not list((out / "checkpoint-2").glob("tokenizer*"))
    tokenizer.save_pretrained(out)
    vectors = []
    model = Model(name="m", source=str(out))
    located = checkpoints.locate(model)
    assert located.suite.revisions == ("checkpoint-2", "checkpoint-4") and located.warnings == ()
    for location in located.locations:
        path = location.path
        read = protocol_of(Protocol(), model, checkpoints.folder_of(location))
        reference = AutoModelForCausalLM.from_pretrained(path).base_model.eval()
        with torch.inference_mode():
            states = [
                reference(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
                for text in TEXTS
            ]
        with TextEncoder(LoadedModel(location, read.base, "cpu"), read, [2]) as encoder:
            vectors.append(encoder.encode(TEXTS))
        np.testing.assert_allclose(vectors[-1], torch.stack(states), atol=1e-5)
        assert checkpoints.recorded(Location(path, None, ""))["tokenizer"] == str(out)
    assert abs(vectors[0] - vectors[1]).max() > 1e-4
    for file in (out / "checkpoint-4").glob("*.*"):
        shutil.copy(file, out)  # as the trainer saves the model with which it ends
    np.testing.assert_allclose(dm.embed(out, TEXTS)[:, -1], vectors[-1], atol=1e-6)
