"""Commands that download, list and export, as far as they work without a network."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import yaml
from huggingface_hub.hf_api import RepoSibling

from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment import prefetch as prefetch
from daskmetrics.experiment.prefetch import MissingFiles
from tests.checkpoints.weights import files
from tests.cli.calling import call, start
from tests.hub import commit, serve

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
HUB = {"name": "far", "source": "nobody/nothing", "revisions": ["step1"], "depth": 2, "width": 8}


@pytest.fixture
def here(tmp_path: Path, minilm: Path, session_cache: Path, monkeypatch) -> Path:
    """A folder with a configuration whose model and task are on this machine."""
    wanted = {
        "name": "here",
        "models": [{"name": "minilm", "source": str(minilm)}],
        "corpus": {"prompts": 8},
        "tasks": ["stdlib:word"],
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(wanted))
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_local_data_is_prepared_once(here: Path, local_mteb: ModuleType) -> None:
    done = call(here, "runs prefetch config.yaml")
    assert (done.exit_code, done.output.strip()) == (0, "Everything is on this machine.")
    name = f"'mteb:{local_mteb.PLACES['LocalPairs']}'"
    asked = call(here, f"runs prefetch --task {name} --dry-run")
    assert asked.exit_code == 1
    assert "mteb:LocalPairs" in asked.output and "0.0 MB to download" in asked.output
    assert "not downloaded" in call(here, f"list tasks {name}").output
    assert call(here, f"runs prefetch --task {name}").exit_code == 0
    assert "Everything is on" in call(here, f"runs prefetch --task {name}").output
    assert "not downloaded" not in call(here, f"list tasks {name}").output


def test_a_failed_download_is_named_and_the_others_continue(
    here: Path, local_mteb: ModuleType, monkeypatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the attempts: minutes
    tasks = ["mteb:BIOSSES", f"mteb:{local_mteb.PLACES['LocalSTS']}"]
    settings = f'--set "tasks={tasks}" --set "models=[{HUB}]"'
    done = call(here, f"runs prefetch config.yaml {settings}")
    assert done.exit_code == 2
    assert "2 of 3 could not be downloaded; run the same command to try again." in done.output
    assert "nobody/nothing@step1:" in done.output and "mteb:BIOSSES:" in done.output
    assert "done   data mteb:LocalSTS" in done.output and "of unknown size" in done.output
    refused = call(here, "run config.yaml --set \"tasks=['mteb:BIOSSES']\"")
    assert refused.exit_code == 2
    assert "daskmetrics runs prefetch --task mteb:BIOSSES" in refused.output
    assert not (here / "runs").exists()


def test_prefetch_lists_branches_and_gets_equal_weights_once(tmp_path: Path) -> None:
    steps = {f"step{step}": files(step) for step in (0, 1)}
    model = {"name": "m", "source": "org/suite", "depth": 2, "width": 8}
    config = {"name": "x", "models": [model], "corpus": {"prompts": 8}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with serve({"org/suite": {**steps, "step2": steps["step1"], "main": steps["step1"]}}) as hub:
        online = hub.environment(tmp_path)
        offline = {**online, "HF_HUB_OFFLINE": "1"}
        refused = start(tmp_path, "runs prefetch config.yaml", **offline)
        assert refused.returncode == 2 and "the list of branches of" in refused.stderr
        assert start(tmp_path, "runs prefetch config.yaml", **online).returncode == 0
        downloads = [path for path in hub.requests if path.endswith("model.safetensors")]
    commits = {commit(steps["step0"]), commit(steps["step1"])}
    assert {path.split("/")[-2] for path in downloads} == commits
    shown = start(tmp_path, "run config.yaml --dry-run", **offline)
    assert shown.returncode == 0 and "not on this machine" not in shown.stdout
    assert "m@step2 = step1 = main: equal weights" in " ".join(shown.stdout.split())


def test_a_disk_too_small_is_an_error_before_any_download(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"The downloads need .*Set HF_HOME"):
        prefetch.require_space([10**18, None], tmp_path / "not" / "there")
    prefetch.require_space([1, None], tmp_path)


def test_sizes_that_the_hub_does_not_report_are_unknown() -> None:
    def offline() -> int:
        raise OSError("no network")

    assert MissingFiles("data", "a", offline, offline).size() is None
    files = [RepoSibling("a", size=7), RepoSibling("b", size=None)]
    assert MissingFiles("data", "a", offline, lambda: files).size() == 7


def test_tasks_lists_kinds_sizes_and_missing_data(here: Path) -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    embedded = call(here, "list tasks stdlib:kinds").output
    kinds = ("clustering", "sts", "reranking", "retrieval", "1,000")
    assert all(kind in embedded for kind in kinds)
    paper = call(here, "list tasks preset:layer-by-layer-32").output
    assert paper.count("not downloaded") == 32 and "about 7,699" in paper
    rows = {line.split()[0]: line.split()[2:4] for line in paper.splitlines() if "mteb:" in line}
    assert rows["mteb:STS17"] == ["en-en", "test"]
    assert rows["mteb:AmazonCounterfactualClassification"][0] == "en-ext+en"
    assert "Total: 1,410,488 texts" in paper
