"""README's Python block runs as it stands, as a script and in a notebook; tests/core/test_main_module.py
starts a smaller program in every way.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas
import pytest
from nbclient import NotebookClient

from tests.embedders import build
from tests.hub import serve
from tests.programs import COUNT, MOST_SECONDS, ROOT, Home

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = {"good": "a {} book that I liked, number {}", "bad": "a {} book that bored me, number {}"}
DOWNLOAD = f"import huggingface_hub; huggingface_hub.snapshot_download('{MODEL}')"
RESULT = """
print("best:", run.best().arm.model)
"""


def readme_block() -> str:
    """The Python block of the section "In Python"."""
    _, section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## In Python\n")
    section, _ = section.split("\n## ", maxsplit=1)
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return str(block)


PROGRAM = COUNT + readme_block() + RESULT


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> dict[str, str]:
    """An environment without a network whose caches hold README's model, as the hub's own client
    downloads it.
    """
    folder = tmp_path_factory.mktemp("caches")
    files = {
        path.relative_to(minilm).as_posix(): path for path in minilm.rglob("*") if path.is_file()
    }
    (folder / "config.yaml").write_text(f"name: readme\nmodels: ['{MODEL}']\n", encoding="utf-8")
    with serve({MODEL: {"main": files}}) as hub:
        environment = hub.environment(folder / "home")
        for words in (
            ["-c", DOWNLOAD],
            ["-m", "daskmetrics", "runs", "prefetch", str(folder / "config.yaml")],
        ):
            command = [sys.executable, *words]
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return {**environment, "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("e5", tmp_path_factory.mktemp("random") / "mine")


@pytest.fixture
def home(tmp_path: Path, caches: dict[str, str], random_model: Path) -> Home:
    """A working folder with the files that the block names."""
    rows = [
        (text.format("long", number), stars)
        for number in range(30)
        for stars, text in TEXTS.items()
    ]
    pandas.DataFrame(rows, columns=["body", "stars"]).to_csv(tmp_path / "reviews.csv", index=False)
    (tmp_path / "mine").symlink_to(random_model)
    return Home(tmp_path, caches)


def require_result(home: Home, output: str) -> None:
    """Check that the block started once, ran to its end, and printed its two leaderboards."""
    assert home.starts() == 1
    assert "Layers of all-MiniLM-L6-v2@main" in output
    assert re.search(r"^best: (all-MiniLM-L6-v2|mine)$", output, re.MULTILINE)
    assert (home.folder / "my-encoder" / "modules.json").is_file()


def test_as_a_script(home):
    ended = home.run_script(PROGRAM)
    assert ended.code == 0, ended.output + ended.errors
    require_result(home, ended.output)


def test_in_a_notebook(home, monkeypatch):
    for name, value in {**home.environment, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(PROGRAM)])
    resources = {"metadata": {"path": str(home.folder)}}
    NotebookClient(
        notebook, kernel_name="python3", timeout=MOST_SECONDS, resources=resources
    ).execute()
    texts = [
        output["text"] for output in notebook.cells[0].outputs if output["output_type"] == "stream"
    ]
    require_result(home, "".join(texts))
