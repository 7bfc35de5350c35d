"""Commands that download, list and export, as far as they work without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from click.testing import CliRunner, Result
from huggingface_hub.hf_api import RepoSibling

from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment import prefetch as prefetch
from daskmetrics.experiment.prefetch import MissingFiles
from tests.checkpoints.weights import files
from tests.hub import commit, serve

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
HUB = {"name": "far", "source": "nobody/nothing", "revisions": ["step1"], "depth": 2, "width": 8}


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words, env={"COLUMNS": "200"})


@pytest.fixture
def configured(tmp_path: Path, minilm: Path, session_cache: Path) -> Path:
    """A configuration whose model and task are on this machine."""
    wanted = {
        "name": "here",
        "models": [{"name": "minilm", "source": str(minilm)}],
        "corpus": {"prompts": 8},
        "tasks": ["stdlib:word"],
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(wanted))
    return path


def test_local_files_are_not_downloaded(configured: Path) -> None:
    done = call("runs", "prefetch", str(configured))
    assert (done.exit_code, done.output.strip()) == (0, "Everything is on this machine.")


def test_local_data_is_prepared_once(
    local_mteb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    name = f"mteb:{local_mteb.PLACES['LocalPairs']}"
    asked = call("runs", "prefetch", "--task", name, "--dry-run")
    assert (
        asked.exit_code == 1
        and "mteb:LocalPairs" in asked.output
        and "0.0 MB to download" in asked.output
    )
    assert "not downloaded" in call("list", "tasks", name).output
    assert call("runs", "prefetch", "--task", name).exit_code == 0
    assert "Everything is on this machine." in call("runs", "prefetch", "--task", name).output
    assert "not downloaded" not in call("list", "tasks", name).output


def test_a_failed_download_is_named_and_the_others_continue(
    configured: Path, local_mteb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    there = f"mteb:{local_mteb.PLACES['LocalSTS']}"
    done = call(
        "runs",
        "prefetch",
        str(configured),
        "--set",
        f"tasks=['mteb:BIOSSES', '{there}']",
        "--set",
        f"models=[{HUB}]",
    )
    assert done.exit_code == 2
    assert "2 of 3 could not be downloaded; run the same command to try again." in done.output
    assert "nobody/nothing@step1:" in done.output and "mteb:BIOSSES:" in done.output
    assert "done   data mteb:LocalSTS" in done.output and "of unknown size" in done.output


def test_prefetch_lists_branches_and_downloads_equal_weights_once(tmp_path: Path) -> None:
    steps = {f"step{step}": files(step) for step in (0, 1)}
    model = {"name": "m", "source": "org/suite", "depth": 2, "width": 8}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"name": "x", "models": [model], "corpus": {"prompts": 8}}))
    with serve({"org/suite": {**steps, "step2": steps["step1"], "main": steps["step1"]}}) as hub:
        here = hub.environment(tmp_path)
        offline = {**here, "HF_HUB_OFFLINE": "1"}

        def command(*words: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
            call = [sys.executable, "-m", "daskmetrics", *words]
            return subprocess.run(
                call, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
            )

        refused = command("runs", "prefetch", str(path), environment=offline)
        assert refused.returncode == 2 and "the list of branches of" in refused.stderr
        assert command("runs", "prefetch", str(path), environment=here).returncode == 0
        downloads = [each for each in hub.requests if each.endswith("model.safetensors")]
        assert {each.split("/")[-2] for each in downloads} == {
            commit(steps["step0"]),
            commit(steps["step1"]),
        }
    shown = command("run", str(path), "--dry-run", environment=offline)
    assert shown.returncode == 0 and "m@step2 = step1 = main: equal weights" in " ".join(
        shown.stdout.split()
    )
    assert "not on this machine" not in shown.stdout


def test_a_run_without_its_data_does_not_start(configured: Path, tmp_path: Path) -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    folder = tmp_path / "run"
    done = call("run", str(configured), "--set", "tasks=['mteb:BIOSSES']", "--folder", str(folder))
    assert done.exit_code == 2 and "daskmetrics runs prefetch --task mteb:BIOSSES" in done.output
    assert not folder.exists()


def test_a_disk_that_is_too_small_is_an_error_before_any_download(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"The downloads need .*Set HF_HOME"):
        prefetch.require_space([10**18, None], tmp_path / "not" / "there")
    prefetch.require_space([1, None], tmp_path)


def test_sizes_that_the_hub_does_not_report_are_unknown() -> None:
    def offline() -> int:
        raise OSError("no network")

    assert MissingFiles("data", "a", offline, offline).size() is None
    files = [RepoSibling("a", size=7), RepoSibling("b", size=None)]
    assert MissingFiles("data", "a", offline, lambda: files).size() == 7


def test_tasks_lists_kinds_sizes_and_missing_data(session_cache: Path) -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    embedded = call("list", "tasks", "stdlib:kinds").output
    assert all(
        kind in embedded for kind in ("clustering", "sts", "reranking", "retrieval", "1,000")
    )
    paper = call("list", "tasks", "preset:layer-by-layer-32").output
    assert paper.count("not downloaded") == 32 and "about 7,699" in paper
    lines = {
        line.split()[0]: line.split()[2:4]
        for line in paper.splitlines()
        if line.startswith("mteb:")
    }
    assert (
        lines["mteb:STS17"] == ["en-en", "test"]
        and lines["mteb:AmazonCounterfactualClassification"][0] == "en-ext+en"
    )
    assert "Total: 1,410,488 texts" in paper


def test_a_folder_without_results_is_an_error(configured: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = call("runs", "import-results", str(tmp_path / "empty"), str(configured))
    assert done.exit_code == 2 and "has no results by layer" in done.output
    assert call("runs", "export", str(tmp_path / "none")).exit_code == 2
