from __future__ import annotations

import pytest
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.training import estimate as estimate
from daskmetrics.training import revisions, train_to


def test_parameters_are_those_of_the_model():
    recipe = Recipe(width=24, depth=3, heads=2, vocabulary=321)
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 321}
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, intermediate_size=96))
    assert estimate.shape_of(recipe).parameters == sum(p.numel() for p in model.parameters())


def test_disk_is_what_training_leaves(recipe, tmp_path):
    for revision in revisions(recipe):
        train_to(recipe, tmp_path / "s", revision)
    weights = sum(path.stat().st_size for path in (tmp_path / "s").rglob("*.safetensors"))
    state = next((tmp_path / "s" / "resume").iterdir()).stat().st_size
    assert estimate.disk(recipe) == pytest.approx(weights + 2 * state, rel=0.2)


def test_memory_falls_with_the_pass_and_with_checkpointing():
    large = Recipe(width=1024, depth=24, heads=16, context=2048, batch=16, vocabulary=50304)
    needed = estimate.memory(large)
    for change in ({"batch": 4}, {"activation_checkpointing": True}, {"precision": "bfloat16"}):
        assert estimate.memory(large.model_copy(update=change)) < 0.8 * needed


def test_an_initial_model_gives_the_shape(recipe, tmp_path):
    train_to(recipe, tmp_path / "s", "step0")
    tuned = Recipe(init_from=str(tmp_path / "s" / "step0"))
    assert estimate.shape_of(tuned) == estimate.shape_of(recipe)
    (tmp_path / "s" / "step0" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot read the model's shape"):
        estimate.shape_of(tuned)
