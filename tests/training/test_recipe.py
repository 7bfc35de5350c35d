"""The built-in program: what its arguments change, and that interruptions change nothing."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError, UndefinedError
from daskmetrics.training import is_complete, revisions, train
from daskmetrics.training import recipe as program
from daskmetrics.training import suite as suite
from daskmetrics.training.recipe import SINGLE, RankSteps, TrainingState, World


def changed(recipe: Recipe, **keys: object) -> Recipe:
    return Recipe.model_validate({**recipe.model_dump(), **keys})


def gradient(recipe: Recipe, folder: Path, world: World = SINGLE) -> torch.Tensor:
    """Of the first step, as the optimizer gets it; Adam would make noise of the size of a step out
    of every zero.
    """
    suite.data.write_corpus(recipe, folder)
    tokens = suite.data.read(folder / "corpus")
    training = TrainingState(recipe, world)
    seen: list[torch.Tensor] = []
    training.optimizer.register_step_pre_hook(
        lambda *_: seen.append(
            torch.cat([p.grad.flatten().clone() for p in training.model.parameters()])
        )
    )
    training.take_step(RankSteps(recipe, tokens)[1])
    return seen[0]


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def weights(folder: Path, revision: str = "step12") -> bytes:
    return (folder / revision / "model.safetensors").read_bytes()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def start(recipe: Recipe, folder: Path) -> subprocess.Popen[bytes]:
    """The program, as a user starts it by hand."""
    words = ["-m", "daskmetrics.training.recipe", str(folder), *recipe.words]
    return subprocess.Popen([sys.executable, *words])


@pytest.mark.parametrize("by", [2, 4])
def test_accumulation_equals_the_larger_batch(recipe, tmp_path, by):
    whole = gradient(recipe, tmp_path / "whole")
    parts = gradient(changed(recipe, batch=4 // by, accumulate=by), tmp_path / "parts")
    assert apart(parts, whole) < 1e-6
    assert apart(gradient(changed(recipe, seed=1), tmp_path / "other"), whole) > 0.1


def test_clipping_bounds_the_gradient(recipe, tmp_path, monkeypatch):
    free = gradient(recipe, tmp_path / "free").norm()
    assert 0.1 < free < program.LARGEST_GRADIENT
    monkeypatch.setattr(program, "LARGEST_GRADIENT", 0.01)
    bound = gradient(recipe, tmp_path / "bound").norm()
    assert float(bound) == pytest.approx(0.01, rel=1e-3)


def stop_at(step: int, recipe: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, and be interrupted after this step."""

    def interrupt(at: int, *_: object, **__: object) -> None:
        if at == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(program, "progress", interrupt)
        train(recipe, folder)


@pytest.mark.slow  # three trainings
def test_half_precision_trains_and_resumes(recipe, tmp_path, undisturbed, monkeypatch):
    half = changed(recipe, precision="bfloat16")
    stop_at(6, half, tmp_path / "resumed", monkeypatch)
    for name in ("resumed", "once"):
        train(half, tmp_path / name)
    losses = [suite.summary(tmp_path / "once", name)["loss"] for name in ("step0", "step12")]
    assert losses[1] < losses[0] - 0.3
    assert losses[1] == pytest.approx(suite.summary(undisturbed, "step12")["loss"], rel=0.02)
    assert weights(tmp_path / "resumed") == weights(tmp_path / "once")
    saved = load_file(tmp_path / "once" / "step12" / "model.safetensors")
    assert all(tensor.dtype == torch.float32 for tensor in saved.values())


def test_a_loss_that_is_not_finite_is_an_error(recipe, tmp_path):
    with pytest.raises(UndefinedError, match="lower learning_rate"):
        train(changed(recipe, learning_rate=1e30), tmp_path / "s")


def test_the_parts_of_a_suite(recipe, undisturbed):
    assert names(undisturbed) == {"corpus", "resume", "progress.jsonl", *revisions(recipe)}
    assert names(undisturbed / "resume") == {"step12.pt"}


def test_a_complete_suite_is_not_trained_again(recipe, undisturbed):
    before = (undisturbed / "step2" / "model.safetensors").stat()
    train(recipe, undisturbed)
    assert (undisturbed / "step2" / "model.safetensors").stat() == before


def test_a_checkpoint_that_is_lost_is_trained_again(recipe, tmp_path, undisturbed):
    folder = shutil.copytree(undisturbed, tmp_path / "suite")
    shutil.rmtree(folder / "step4")
    train(recipe, folder)
    assert weights(folder, "step4") == weights(undisturbed, "step4")
    assert names(folder) == names(undisturbed)


@pytest.mark.parametrize("lost", ["nothing", "resume", "corpus", "step4", "a state", "leftovers"])
def test_what_a_crash_leaves_does_not_change_the_weights(
    recipe, tmp_path, undisturbed, lost, monkeypatch
):
    folder = tmp_path / "crashed"
    stop_at(6, recipe, folder, monkeypatch)
    state = folder / "resume" / "step4.pt"
    assert state.exists() and not (folder / "step8").exists()
    if lost == "a state":
        shutil.copy(state, folder / "resume" / ".step5.pt.123.part")
        (folder / "resume" / "step3.pt").write_bytes(b"")
    elif lost == "leftovers":
        (folder / ".step8.123.part").mkdir()
        (folder / ".step8.123.part" / "model.safetensors").write_bytes(b"half")
        (folder / "resume" / ".step8.pt.123.part").write_bytes(b"half")
    elif lost != "nothing":
        shutil.rmtree(folder / lost)
    train(recipe, folder)
    assert weights(folder) == weights(undisturbed)
    assert names(folder / "resume") == {"step12.pt"}
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_two_processes_at_once_do_not_disturb_each_other(recipe, tmp_path, undisturbed):
    folder = tmp_path / "shared"
    both = [start(recipe, folder) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert weights(folder) == weights(undisturbed)
    assert names(folder) == names(undisturbed)


def test_a_killed_program_goes_on_bit_for_bit(recipe, tmp_path, undisturbed):
    folder = tmp_path / "killed"
    process = start(recipe, folder)
    while not is_complete(folder, "step2"):
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()
    assert not is_complete(folder, "step12")
    assert start(recipe, folder).wait() == 0
    assert weights(folder) == weights(undisturbed)
    assert names(folder) == names(undisturbed)
    state, expected = (
        torch.load(place / "resume" / "step12.pt", weights_only=True)
        for place in (folder, undisturbed)
    )
    assert torch.equal(state["random"], expected["random"])


def test_transformers_loads_a_revision(recipe, undisturbed):
    folder = undisturbed / "step4"
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


def test_the_arguments_are_those_of_the_recipe(tmp_path, capsys):
    given = Recipe(steps=9, checkpoints=(0, 3), corpus="a 😀.txt", learning_rate=1e-5, stage="$T")
    assert program.parsed(["suite", *given.words]) == (given, Path("suite"), math.inf)
    assert program.parsed(["suite", "--until=4"])[2] == 4
    assert program.parsed(["suite", "--corpus=texts/", "--checkpoints", "4"])[0] == Recipe(
        corpus="texts/", checkpoints=4
    )
    with pytest.raises(SystemExit):
        program.parsed(["suite", "--wdth", "8"])
    assert "--wdth" in capsys.readouterr().err


def test_the_state_of_the_calling_process_stays(recipe, tmp_path):
    threads = torch.get_num_threads()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(changed(recipe, steps=1, threads=threads + 1), tmp_path / "suite")
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_a_corpus_that_is_too_short_is_an_error(recipe, tmp_path):
    (tmp_path / "short.txt").write_text("short", encoding="utf-8")
    short = changed(recipe, corpus=str(tmp_path / "short.txt"))
    with pytest.raises(ConfigError, match="context of 16 needs more"):
        train(short, tmp_path / "t")
