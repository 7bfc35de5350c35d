from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.calling import MODEL, call, fails

BASE = {"name": "wrong", "models": [MODEL], "tasks": ["stdlib:order"]}


# the messages of the packages are shown by their own tests: one of each stage
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**BASE, "metrcs": ["all"]}, "Unknown key 'metrcs'. Did you mean 'metrics'?"),
        ({**BASE, "models": [{"name": "m", "source": "./nowhere"}]}, "no folder './nowhere'"),
        ({**BASE, "search": {"policy": "rase"}}, "Unknown policy 'rase'. Did you mean 'race'?"),
        ({**BASE, "corpus": {"source": "none.txt"}}, "none.txt"),
    ],
    ids=["key", "folder", "policy", "corpus"],
)
def test_a_mistake_gives_one_message_and_exit_code_2_and_starts_nothing(tmp_path, config, message):
    done = call(tmp_path, "run", "config.yaml", config=config)
    assert fails(done, message), done.output
    assert not (tmp_path / "runs").exists()


def test_the_error_for_a_missing_run_names_it(tmp_path):
    assert fails(call(tmp_path, "status", "runs/none"), "No run in 'runs/none'")


def test_a_dry_run_of_the_real_grid_counts_and_starts_nothing(tmp_path):
    config = Path(__file__).parents[2] / "configs" / "pythia.yaml"
    done = call(tmp_path, "run", "--dry-run", str(config))
    assert done.exit_code == 0, done.stderr
    for text in ("5,184 in 432 checkpoints", "165,888 scores", "32 (slurm)", "estimated"):
        assert text in done.stdout
    assert not (tmp_path / "runs").exists()


def test_the_policies_are_listed(tmp_path):
    done = call(tmp_path, "list", "policies")
    assert done.exit_code == 0 and "race" in done.stdout and "sweep" in done.stdout


def test_dask_has_the_commands(tmp_path):
    done = subprocess.run(
        [Path(sys.executable).parent / "dask", "metrics", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "report" in done.stdout


def test_short_options_are_settings(tmp_path):
    done = call(tmp_path, "run", "--dry-run", "--policy", "sweep")
    assert "sweep; budget 100.0% of the cost of every score" in " ".join(done.stdout.split())


OWN = {
    "beside.py": "from daskmetrics.metrics import Metric\n"
    "NORM = Metric('norm', 'pooled', '1', 'mean norm', 'beside:norm')\n"
    "def norm(states):\n    return float(states.norm(dim=-1).mean())\n",
    "../own.py": "from daskmetrics.bandit.policies import sweep as ask\n"
    "from daskmetrics.tasks import resolve\n"
    "TASK = resolve(['stdlib:order'])[0]\n",
    "../queue.py": "raise RuntimeError('a file here replaced a module of Python')\n",
    "mine.yaml": "{name: mine, corpus: {prompts: 9}, metrics: ['beside:NORM'], tasks: ['own:TASK'],"
    "models: [{name: tiny, revisions: [step2], layers: [1], train: {width: 8, depth: 1, heads: 2, steps: 2}}],"
    "search: {policy: 'own:ask', budget: 1}, cluster: {workers: 1}}",
}


@pytest.mark.slow  # a whole run in a process of its own
def test_own_code_beside_the_configuration_and_here_is_found_as_by_a_console_script(tmp_path):
    folder = tmp_path / "configs"
    folder.mkdir()
    for name, text in OWN.items():
        (folder / name).write_text(text)
    script = "from daskmetrics.cli import main; main()"
    words = [sys.executable, "-P", "-c", script, "run", "configs/mine.yaml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "layer 1: score" in done.stdout, done.stderr
    assert "norm" in done.stderr and "missing" not in done.stdout
