from __future__ import annotations

import math
import multiprocessing
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.training import data as data
from daskmetrics.training import is_complete, recipe_key, revisions, train_to
from daskmetrics.training import suite as suite
from tests.training.conftest import train_all

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["daskmetrics.training._learning"])  # torch is imported once


def weights(folder: Path, revision: str) -> bytes:
    return (folder / revision / "model.safetensors").read_bytes()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_chain_of_calls_equals_one_go_bit_for_bit(recipe, tmp_path, chain):
    torch.manual_seed(5)  # the state of the process does not matter, and stays
    expected = torch.rand(3)
    torch.manual_seed(5)
    once = tmp_path / "once"
    train_to(recipe, once, "step12")
    assert torch.equal(torch.rand(3), expected)
    assert weights(chain, "step12") == weights(once, "step12")
    assert names(chain) == {"corpus", "resume", *revisions(recipe)}
    assert names(chain / "resume") == {"step12.pt"}
    # an earlier revision can be made later
    train_to(recipe, once, "step4")
    assert weights(once, "step4") == weights(chain, "step4")
    assert names(once / "resume") == {"step12.pt"}


def test_a_complete_revision_is_not_trained_again(recipe, chain):
    before = (chain / "step2" / "model.safetensors").stat()
    assert train_to(recipe, chain, "step2") == suite.summary(chain, "step2")
    assert (chain / "step2" / "model.safetensors").stat() == before


@pytest.fixture(scope="module")
def until_step4(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("until") / "suite"
    train_to(recipe, folder, "step4")
    return folder


@pytest.mark.parametrize("lost", ["resume", "corpus", "step4", "older state", "leftovers"])
def test_the_remains_of_a_crash_do_not_change_the_weights(
    recipe, tmp_path, until_step4, chain, lost
):
    folder = shutil.copytree(until_step4, tmp_path / "crashed")
    state = folder / "resume" / "step4.pt"
    if lost == "older state":
        shutil.copy(state, folder / "resume" / ".step5.pt.123.part")
        (folder / "resume" / "step3.pt").write_bytes(b"")
    elif lost == "leftovers":
        (folder / ".step8.123.part").mkdir()
        (folder / ".step8.123.part" / "model.safetensors").write_bytes(b"half")
        (folder / "resume" / ".step8.pt.123.part").write_bytes(b"half")
    else:
        shutil.rmtree(folder / lost)
    train_to(recipe, folder, "step12")
    assert weights(folder, "step12") == weights(chain, "step12")
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_two_processes_at_once_do_not_disturb_each_other(recipe, tmp_path, chain):
    folder = tmp_path / "shared"
    both = [PROCESSES.Process(target=train_to, args=(recipe, folder, "step8")) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert weights(folder, "step8") == weights(chain, "step8")
    assert names(folder) == {"corpus", "resume", "step8"}


def test_a_killed_process_does_not_change_the_weights(recipe, tmp_path, chain):
    folder = tmp_path / "killed"
    process = PROCESSES.Process(target=train_all, args=(recipe, folder))
    process.start()
    while not is_complete(folder, "step2"):
        assert process.is_alive()
        time.sleep(0.001)
    process.kill()
    process.join()
    train_to(recipe, folder, "step12")
    assert weights(folder, "step12") == weights(chain, "step12")
    assert names(folder) <= names(chain) and names(folder / "resume") == {"step12.pt"}


def test_transformers_loads_a_revision(recipe, chain):
    folder = chain / "step4"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert type(model).__name__ == "GPTNeoXForCausalLM"
    body = AutoModel.from_pretrained(folder, dtype=torch.float32)
    inputs = AutoTokenizer.from_pretrained(folder)(["3 times seven is 21"], return_tensors="pt")
    with torch.no_grad():
        states = body(**inputs, output_hidden_states=True, use_cache=False).hidden_states
        there = model.gpt_neox(**inputs, use_cache=False).last_hidden_state
    assert len(states) == recipe.depth + 1 and states[0].shape[-1] == recipe.width
    assert suite.parameters(recipe) == sum(p.numel() for p in model.parameters())
    assert torch.equal(states[-1], there)


def test_naming_revisions_needs_no_torch(recipe):
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


def test_the_key_depends_on_the_text_and_not_on_the_file(recipe, tmp_path):
    moved = recipe.model_copy(update={"corpus": shutil.copy(recipe.corpus, tmp_path / "moved.txt")})
    other = recipe.model_copy(update={"seed": 1})
    assert recipe_key(moved) == recipe_key(recipe) != recipe_key(other)
    Path(moved.corpus).write_text("another text", encoding="utf-8")
    assert recipe_key(moved) != recipe_key(recipe)


def test_unusable_requests_are_errors(recipe, tmp_path):
    with pytest.raises(ConfigError, match=r"Unknown revision 'step3'.*step12"):
        train_to(recipe, tmp_path / "s", "step3")
    (tmp_path / "short.txt").write_text("short", encoding="utf-8")
    short = recipe.model_copy(update={"corpus": str(tmp_path / "short.txt")})
    with pytest.raises(ConfigError, match="context of 16 needs more"):
        train_to(short, tmp_path / "t", "step0")


def test_epochs_become_steps_by_counting_the_corpus(recipe, tmp_path, chain):
    base = {**recipe.model_dump(exclude={"steps", "epochs"}), "batch": 4}
    counted = data.with_steps(Recipe(epochs=0.5, **base), tmp_path / "cache")
    sequences = data.epoch(recipe, tmp_path / "cache")
    assert sequences == len(np.load(chain / "corpus" / "tokens.npy")) // 16
    assert counted.epochs is None and counted.steps == math.ceil(0.5 * sequences / 4)
    # equal steps give equal suites
    assert recipe_key(counted) == recipe_key(Recipe(steps=counted.steps, **base))
    with pytest.raises(ValueError, match="leave out 'steps'"):
        Recipe(epochs=3, steps=8, **base)


def test_disk_is_what_training_leaves(recipe, chain):
    saved = sum(path.stat().st_size for path in chain.rglob("*.safetensors"))
    state = next((chain / "resume").iterdir()).stat().st_size
    assert suite.disk(recipe) == pytest.approx(saved + 2 * state, rel=0.2)
