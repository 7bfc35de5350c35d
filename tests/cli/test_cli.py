from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from daskmetrics.core.errors import ConfigError
from tests.cli.calling import call

GRID = Path(__file__).parents[2] / "configs" / "pythia.yaml"


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (
            "run --dry-run --policy sweep --workers 3",
            ("sweep; budget 100.0% of the cost of every score", "3 (local)"),
        ),
        (
            "map bench.py:step --iterations 500 --batch-size 10 --dry-run --output r.csv",
            (
                "500, of which 0 are recorded",
                "50 of up to 10 items",
                "2 (local)",
                "seeded per item",
            ),
        ),
        (
            "train config.yaml --dry-run --set models.0.train.accumulate=4 --folder suites",
            ("32 sequences = 8 per pass x 4 passes", "steps 2", "suites"),
        ),
    ],
)
def test_a_dry_run_counts_and_starts_nothing(place, line, facts):
    require_counted(place, line, facts)


def test_a_dry_run_of_the_real_grid_counts_it(place):
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    facts = ("5,184 in 432 checkpoints", "165,888 scores", "32 (slurm)", "estimated")
    require_counted(place, f"run --dry-run {GRID}", facts)


def require_counted(place, line, facts):
    done = call(place, line, DASKMETRICS_CACHE=str(place / "cache"))
    assert done.exit_code == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert [fact for fact in facts if fact not in shown] == [], shown
    assert not (place / "runs").exists() and not (place / "suites").exists()


def test_values_of_a_part_of_the_readouts_may_come_one_by_one(place, monkeypatch):
    def show(*arguments):
        raise ConfigError(str(arguments[7]))

    monkeypatch.setattr("daskmetrics.experiment.direct.score_layers", show)
    parts = ("pooling=mean", "dimensions=64", "pooling=last,cls")
    options = " ".join(f"--readouts {part}" for part in parts)
    done = call(place, f"layers m --task stdlib:order {options}")
    assert "{'pooling': ['mean', 'last', 'cls'], 'dimensions': [64]}" in done.stderr


def test_dask_has_the_commands(tmp_path):
    program = Path(sys.executable).parent / "dask"
    done = subprocess.run([program, "metrics", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "report" in done.stdout


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
def test_a_console_script_finds_code_here_and_beside_the_config(tmp_path):
    folder = tmp_path / "configs"
    folder.mkdir()
    for name, text in OWN.items():
        (folder / name).write_text(text)
    script = "from daskmetrics.cli import main; main()"
    words = [sys.executable, "-P", "-c", script, "run", "configs/mine.yaml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "layer 1: accuracy" in done.stdout, done.stderr
    assert "norm" in done.stderr and "missing" not in done.stdout
