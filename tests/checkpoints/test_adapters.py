"""A run over a folder of adapters, whose best arm can be used and saved."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import daskmetrics as dm
from tests.models.architectures import build

peft = pytest.importorskip("peft", reason="needs the extra 'dev'")


@pytest.mark.slow  # a whole run
@pytest.mark.filterwarnings("ignore")  # of peft
def test_a_run_over_adapters(tmp_path, minilm, client):
    base = build("gpt_neox", tmp_path / "base", minilm, head=True)
    for step in (100, 200):
        plain = AutoModelForCausalLM.from_pretrained(base)
        network = peft.get_peft_model(plain, peft.LoraConfig(r=2))
        torch.manual_seed(step)
        for name, parameter in network.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, 0.0, 0.3)
        network.save_pretrained(tmp_path / "out" / f"checkpoint-{step}")
    run = dm.run(
        models=[tmp_path / "out"],
        tasks=["stdlib:word"],
        budget=1.0,
        metrics=[],
        client=client,
        folder=tmp_path / "run",
    )
    assert set(run.to_frame()["checkpoint"]) == {"checkpoint-100", "checkpoint-200"}
    best = run.best()
    assert np.isfinite(best.load().encode(["a text", "another"])).all()
    assert (best.save(tmp_path / "merged") / "model.safetensors").is_file() or best.arm.layer == 0
