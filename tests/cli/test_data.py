"""Verbs that fetch, list and carry out, as far as they go without a network."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import yaml
from click.testing import CliRunner, Result

from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment import _prefetch as prefetch
from daskmetrics.experiment._prefetch import Need

pytestmark = pytest.mark.filterwarnings("default")  # the benchmark's own
HUB = {"name": "far", "source": "nobody/nothing", "revisions": ["step1"], "depth": 2, "width": 8}


def call(*words: str) -> Result:
    return CliRunner().invoke(main, words, env={"COLUMNS": "200"})


@pytest.fixture
def configured(tmp_path: Path, minilm: Path, session_cache: Path) -> Path:
    """A configuration whose model and task are here."""
    wanted = {
        "name": "here",
        "models": [{"name": "minilm", "source": str(minilm)}],
        "corpus": {"prompts": 8},
        "tasks": ["stdlib:word"],
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(wanted))
    return path


def test_what_is_here_is_not_fetched(configured: Path) -> None:
    done = call("prefetch", str(configured))
    assert (done.exit_code, done.output.strip()) == (0, "Everything is here.")


def test_local_data_is_made_ready_once(local_mteb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    name = f"mteb:{local_mteb.PLACES['LocalPairs']}"
    asked = call("prefetch", "--task", name, "--dry-run")
    assert asked.exit_code == 1 and "mteb:LocalPairs" in asked.output and "0.0 MB to fetch" in asked.output
    assert "not here" in call("tasks", name).output
    assert call("prefetch", "--task", name).exit_code == 0
    assert "Everything is here." in call("prefetch", "--task", name).output
    assert "not here" not in call("tasks", name).output


def test_what_cannot_be_fetched_is_named_and_the_rest_goes_on(
    configured: Path, local_mteb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    there = f"mteb:{local_mteb.PLACES['LocalSTS']}"
    done = call("prefetch", str(configured), "--set", f"tasks=['mteb:BIOSSES', '{there}']", "--set", f"models=[{HUB}]")
    assert done.exit_code == 2
    assert "2 of 3 could not be fetched; the same command tries again." in done.output
    assert "nobody/nothing@step1:" in done.output and "mteb:BIOSSES:" in done.output
    assert "here    data mteb:LocalSTS" in done.output and "of unknown size" in done.output


def test_a_run_without_its_data_ends_before_it_begins(configured: Path, tmp_path: Path) -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    folder = tmp_path / "run"
    done = call("run", str(configured), "--set", "tasks=['mteb:BIOSSES']", "--folder", str(folder))
    assert done.exit_code == 2 and "daskmetrics prefetch --task mteb:BIOSSES" in done.output
    assert not folder.exists()


def test_too_small_a_disk_is_told_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"are to be fetched into .*Set HF_HOME"):
        prefetch.require_room([10**18, None], tmp_path / "not" / "there")
    prefetch.require_room([1, None], tmp_path)


def test_sizes_that_the_hub_does_not_tell_are_unknown() -> None:
    def offline() -> int:
        raise OSError("no network")

    assert Need("data", "a", offline, offline).size() is None
    assert Need("data", "a", offline, lambda: 7).size() == 7


def test_tasks_lists_kinds_sizes_and_what_is_not_here(session_cache: Path) -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    embedded = call("tasks", "stdlib:kinds").output
    assert all(kind in embedded for kind in ("clustering", "sts", "reranking", "retrieval", "1,000"))
    paper = call("tasks", "preset:layer-by-layer-32").output
    assert paper.count("not here") == 32 and "about 13,083" in paper


def test_no_results_are_named(configured: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = call("import-results", str(tmp_path / "empty"), str(configured))
    assert done.exit_code == 2 and "holds no results by layer" in done.output
    assert call("export", str(tmp_path / "none")).exit_code == 2
