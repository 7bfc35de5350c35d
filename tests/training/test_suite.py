from __future__ import annotations

import math
import multiprocessing
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
)

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.training import is_complete, recipe_key, revisions, train_to
from daskmetrics.training import suite as suite


def weights(folder: Path, revision: str) -> bytes:
    return (folder / revision / "model.safetensors").read_bytes()


def in_one_go(recipe: Recipe, folder: Path) -> bytes:
    train_to(recipe, folder, revisions(recipe)[-1])
    return weights(folder, revisions(recipe)[-1])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_chain_of_calls_equals_one_go_bit_for_bit(
    recipe: Recipe, tmp_path: Path, undisturbed: Path
) -> None:
    chain = tmp_path / "chain"
    for revision in revisions(recipe):
        torch.manual_seed(hash(revision))  # the state of the process must not matter
        train_to(recipe, chain, revision)
    assert weights(chain, "step12") == weights(undisturbed, "step12")
    assert names(chain) == {"corpus", "resume", *revisions(recipe)}
    assert names(chain / "resume") == {"step12.pt"}


def test_a_complete_revision_is_not_trained_again(recipe: Recipe, tmp_path: Path) -> None:
    summary = train_to(recipe, tmp_path / "s", "step2")
    before = (tmp_path / "s" / "step2" / "model.safetensors").stat()
    assert train_to(recipe, tmp_path / "s", "step2") == summary
    assert (tmp_path / "s" / "step2" / "model.safetensors").stat() == before


def test_the_random_state_of_the_process_is_unchanged(recipe: Recipe, tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train_to(recipe, tmp_path / "s", "step1")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "lost", ["resume", "corpus", "step4", "truncated state", "older state", "leftovers"]
)
def test_the_remains_of_a_crash_do_not_change_the_weights(
    recipe: Recipe, tmp_path: Path, undisturbed: Path, lost: str
) -> None:
    folder = tmp_path / "crashed"
    train_to(recipe, folder, "step4")
    state = folder / "resume" / "step4.pt"
    if lost == "truncated state":
        state.write_bytes(state.read_bytes()[:1000])
    elif lost == "older state":
        shutil.copy(state, folder / "resume" / ".step5.pt.123.part")
        (folder / "resume" / "step3.pt").write_bytes(b"")
    elif lost == "leftovers":
        (folder / ".step8.123.part").mkdir()
        (folder / ".step8.123.part" / "model.safetensors").write_bytes(b"half")
        (folder / "resume" / ".step8.pt.123.part").write_bytes(b"half")
    else:
        shutil.rmtree(folder / lost)
    assert in_one_go(recipe, folder) == weights(undisturbed, "step12")
    assert not [
        path
        for path in folder.rglob("*")
        if path.name.startswith(".") or path.name.endswith(".part")
    ]


def test_an_earlier_revision_can_be_made_later(recipe: Recipe, tmp_path: Path) -> None:
    train_to(recipe, tmp_path / "late", "step8")
    train_to(recipe, tmp_path / "late", "step4")
    train_to(recipe, tmp_path / "once", "step4")
    assert weights(tmp_path / "late", "step4") == weights(tmp_path / "once", "step4")
    assert names(tmp_path / "late" / "resume") == {"step8.pt"}


def test_two_processes_at_once_do_not_disturb_each_other(recipe: Recipe, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=train_to, args=(recipe, folder, "step8")) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    train_to(recipe, tmp_path / "once", "step8")
    assert weights(folder, "step8") == weights(tmp_path / "once", "step8")
    assert names(folder) == {"corpus", "resume", "step8"}


def test_a_killed_process_does_not_change_the_weights(
    recipe: Recipe, tmp_path: Path, undisturbed: Path
) -> None:
    folder = tmp_path / "killed"
    code = """
import sys
from pathlib import Path
from daskmetrics.config import Recipe
from daskmetrics.training import revisions, train_to
recipe = Recipe.model_validate_json(sys.argv[1])
for revision in revisions(recipe):
    train_to(recipe, Path(sys.argv[2]), revision)
"""
    process = subprocess.Popen([sys.executable, "-c", code, recipe.model_dump_json(), str(folder)])
    while not is_complete(folder, "step2"):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert in_one_go(recipe, folder) == weights(undisturbed, "step12")
    assert names(folder) <= {"corpus", "resume", *revisions(recipe)}
    assert names(folder / "resume") == {"step12.pt"}


def test_transformers_loads_a_revision(recipe: Recipe, tmp_path: Path) -> None:
    train_to(recipe, tmp_path / "s", "step4")
    folder = tmp_path / "s" / "step4"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert type(model).__name__ == "GPTNeoXForCausalLM"
    body = AutoModel.from_pretrained(folder, dtype=torch.float32)
    inputs = AutoTokenizer.from_pretrained(folder)(["3 times seven is 21"], return_tensors="pt")
    with torch.no_grad():
        states = body(**inputs, output_hidden_states=True, use_cache=False).hidden_states
        there = model.gpt_neox(**inputs, use_cache=False).last_hidden_state
    assert len(states) == recipe.depth + 1
    assert states[0].shape[-1] == recipe.width
    assert torch.equal(states[-1], there)


def test_naming_revisions_needs_no_torch(recipe: Recipe) -> None:
    code = f"""
import sys
from pathlib import Path
from daskmetrics.config import Recipe
from daskmetrics.training import suite as suite
from daskmetrics.training import is_complete, recipe_key, revisions
recipe = Recipe.model_validate_json({recipe.model_dump_json()!r})
recipe_key(recipe), revisions(recipe), is_complete(Path("nowhere"), "step0")
assert not {{"torch", "transformers", "tokenizers", "distributed"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_key_depends_on_the_text_and_not_on_the_file(recipe: Recipe, tmp_path: Path) -> None:
    moved = recipe.model_copy(update={"corpus": shutil.copy(recipe.corpus, tmp_path / "moved.txt")})
    other = recipe.model_copy(update={"seed": 1})
    assert recipe_key(moved) == recipe_key(recipe) != recipe_key(other)
    Path(moved.corpus).write_text("another text", encoding="utf-8")
    assert recipe_key(moved) != recipe_key(recipe)


def test_unusable_requests_are_errors(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Unknown revision 'step3'.*step12"):
        train_to(recipe, tmp_path / "s", "step3")
    (tmp_path / "short.txt").write_text("short", encoding="utf-8")
    with pytest.raises(ConfigError, match="context of 16 needs more"):
        train_to(
            recipe.model_copy(update={"corpus": str(tmp_path / "short.txt")}),
            tmp_path / "t",
            "step0",
        )


def test_epochs_become_steps_by_counting_the_corpus(recipe: Recipe, tmp_path: Path) -> None:
    base = {**recipe.model_dump(exclude={"steps", "epochs"}), "batch": 4}
    assert suite.epoch(recipe, tmp_path / "cache") is None
    counted = suite.with_steps(Recipe(epochs=0.5, **base), tmp_path / "cache")
    sequences = suite.epoch(recipe, tmp_path / "cache")
    suite.write_corpus(recipe, tmp_path / "suite")
    tokens = np.load(tmp_path / "suite" / "corpus" / "tokens.npy")
    assert sequences == len(tokens) // 16 and counted.epochs is None
    assert counted.steps == math.ceil(0.5 * sequences / 4)
    assert recipe_key(counted) == recipe_key(Recipe(steps=counted.steps, **base)), (
        "equal steps give equal suites"
    )
    with pytest.raises(ValueError, match="leave out 'steps'"):
        Recipe(epochs=3, steps=8, **base)


def test_suites_of_earlier_versions_are_found_again(recipe: Recipe) -> None:
    assert recipe_key(recipe) == "0ea8315d3b02ae7e94fca1b3e24e37f9"


def test_parameters_are_those_of_the_model() -> None:
    recipe = Recipe(width=24, depth=3, heads=2, vocabulary=321)
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 321}
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, intermediate_size=96))
    assert suite.parameters(recipe) == sum(p.numel() for p in model.parameters())


def test_disk_is_what_training_leaves(recipe: Recipe, tmp_path: Path) -> None:
    for revision in revisions(recipe):
        train_to(recipe, tmp_path / "s", revision)
    weights = sum(path.stat().st_size for path in (tmp_path / "s").rglob("*.safetensors"))
    state = next((tmp_path / "s" / "resume").iterdir()).stat().st_size
    assert suite.disk(recipe) == pytest.approx(weights + 2 * state, rel=0.2)


def test_memory_falls_with_the_pass_and_with_checkpointing() -> None:
    large = Recipe(width=1024, depth=24, heads=16, context=2048, batch=16, vocabulary=50304)
    needed = suite.memory(large)
    for change in ({"batch": 4}, {"activation_checkpointing": True}, {"precision": "bfloat16"}):
        assert suite.memory(large.model_copy(update=change)) < 0.8 * needed
