"""README's Python block runs as it stands, as a script; tests/core/test_main_module.py starts a
smaller program in every way, and `make notebooks` in notebooks.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pandas
import pytest

from tests.embedders import build
from tests.hub import serve
from tests.programs import COUNT, ROOT, Home

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
    paths = [path for path in minilm.rglob("*") if path.is_file()]
    files = {path.relative_to(minilm).as_posix(): path for path in paths}
    (folder / "config.yaml").write_text(f"name: readme\nmodels: ['{MODEL}']\n", encoding="utf-8")
    with serve({MODEL: {"main": files}}) as hub:
        environment = hub.environment(folder / "home")
        for words in (
            ["-c", DOWNLOAD],
            ["-m", "daskmetrics", "runs", "prefetch", str(folder / "config.yaml")],
        ):
            settings = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
            done = subprocess.run([sys.executable, *words], **settings)
            assert done.returncode == 0, done.stdout + done.stderr
    return {**environment, "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("e5", tmp_path_factory.mktemp("random") / "mine")


@pytest.fixture
def home(tmp_path: Path, caches: dict[str, str], random_model: Path) -> Home:
    """A working folder with the files that the block names."""
    pairs = product(range(30), TEXTS.items())
    rows = [(text.format("long", number), stars) for number, (stars, text) in pairs]
    pandas.DataFrame(rows, columns=["body", "stars"]).to_csv(tmp_path / "reviews.csv", index=False)
    (tmp_path / "mine").symlink_to(random_model)
    return Home(tmp_path, caches)


def test_as_a_script(home):
    """It starts once, runs to its end, and prints its two leaderboards."""
    ended = home.run_script(PROGRAM)
    assert ended.code == 0, ended.output + ended.errors
    assert ended.starts == 1
    assert "Layers of all-MiniLM-L6-v2@main" in ended.output
    assert re.search(r"^best: (all-MiniLM-L6-v2|mine)$", ended.output, re.MULTILINE)
    assert (home.folder / "my-encoder" / "modules.json").is_file()
