"""A run over a folder of adapters loads their base once in each worker, and its best arm can be
used and saved.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import daskmetrics as dm
from tests.models.architectures import build

peft = pytest.importorskip("peft", reason="needs the extra 'dev'")

TEXTS = [f"{word} number {number}" for word in ("cats", "stars") for number in range(12)]


def count_loads():
    """Let this worker note where it loads networks from."""
    from daskmetrics.models import _networks as networks

    load, networks.loaded = networks.load_module, []

    def counted(location, dtype):
        networks.loaded.append(location.path)
        return load(location, dtype)

    networks.load_module = counted


def loads():
    from daskmetrics.models import _networks as networks

    return networks.loaded


@pytest.mark.slow  # a whole run
@pytest.mark.filterwarnings("ignore")  # of peft
def test_a_run_over_adapters(tmp_path, minilm, client):
    base = build("gpt_neox", tmp_path / "base", minilm, head=True)
    steps = (100, 200, 300)
    for step in steps:
        torch.manual_seed(step)
        network = peft.get_peft_model(
            AutoModelForCausalLM.from_pretrained(base), peft.LoraConfig(r=2)
        )
        for name, parameter in network.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, 0.0, 0.3)
        network.save_pretrained(tmp_path / "out" / f"checkpoint-{step}")
    frame = pd.DataFrame({"text": TEXTS, "label": ["a"] * 12 + ["b"] * 12})
    client.run(count_loads)
    run = dm.run(
        models=[tmp_path / "out"],
        tasks=[frame],
        budget=1.0,
        corpus={"prompts": 8},
        metrics=["prompt_entropy"],
        client=client,
        folder=tmp_path / "run",
    )
    loaded = client.run(loads).values()
    assert max(map(len, loaded)) == 1 and {path for each in loaded for path in each} == {str(base)}
    best = run.best()
    assert best.arm.model == "out"
    assert set(run.to_frame()["checkpoint"]) == {f"checkpoint-{step}" for step in steps}
    with best.load() as encoder:
        assert np.isfinite(encoder.encode(TEXTS)).all()
    assert (best.save(tmp_path / "merged") / "model.safetensors").is_file() or best.arm.layer == 0
