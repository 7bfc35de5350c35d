"""Examples of docstrings that need a run, a client or files, and are skipped as doctests: each runs
here as it stands.
"""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import bokeh.io
import matplotlib.pyplot
import numpy as np
import pandas
import pytest

import daskmetrics as dm
from daskmetrics.cluster import ProfileCluster
from daskmetrics.domain.names import Arm

PACKAGE = Path(dm.__file__).parent

#: Examples that other tests run, since they take minutes or a training of the user's.
ELSEWHERE = {
    "daskmetrics": "tests/test_readme.py",
    "daskmetrics.run": "tests/test_readme.py",
    "daskmetrics.train": "tests/cli/test_train.py",
    "daskmetrics.watch": "tests/experiment/test_watch.py",
    "daskmetrics.experiment.watch_process.BackgroundWatch": "tests/experiment/test_watch.py",
    "daskmetrics.experiment.watch_process.WatchCallback": "tests/experiment/test_watch.py",
    "daskmetrics.experiment.watch_process.WatchCallback.on_train_begin": "tests/experiment/test_watch.py",
    "daskmetrics.experiment.watch_process.WatchCallback.on_train_end": "tests/experiment/test_watch.py",
    "daskmetrics.training.progress.ProgressCallback": "tests/experiment/test_watch.py",
    "daskmetrics.training.progress.ProgressCallback.on_log": "tests/experiment/test_watch.py",
    "daskmetrics.models._encoder.TextEncoder": "tests/experiment/test_direct.py",
    "daskmetrics.models._encoder.TextEncoder.encode": "tests/experiment/test_direct.py",
    "daskmetrics.report._background.BackgroundRun": "tests/report/test_background.py",
    "daskmetrics.report._run.Best.load": "tests/experiment/test_direct.py",
}


def skipped_examples() -> dict[str, doctest.DocTest]:
    """Docstrings all of whose examples are skipped, or some, by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "doctest: +SKIP" not in path.read_text(encoding="utf-8"):
            continue
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        for test in doctest.DocTestFinder().find(module):
            if any(example.options.get(doctest.SKIP) for example in test.examples):
                found[test.name] = test
    return found


EXAMPLES = skipped_examples()


class Checker(doctest.OutputChecker):
    """Compares what an example prints where its docstring shows it."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


def step(item: int, *, seed: int) -> int:
    return 2 * item


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, minilm: Path, client) -> Iterator[Path]:
    """The folder that examples are about: a run, a table of reviews and a model."""
    folder = tmp_path_factory.mktemp("place")
    rows = [(f"a {word} book, number {i}", word) for word in ("good", "bad") for i in range(30)]
    pandas.DataFrame(rows, columns=["body", "stars"]).to_csv(folder / "reviews.csv", index=False)
    (folder / "sentence-transformers").mkdir()
    for link in ("minilm", "sentence-transformers/all-MiniLM-L6-v2"):
        (folder / link).symlink_to(minilm)
    tiny = {"name": "tiny", "train": {"width": 8, "depth": 2, "steps": 8}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKMETRICS_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        dm.run(
            name="demo",
            models=[tiny],
            tasks=["stdlib:order", "stdlib:word"],
            metrics=["prompt_entropy"],
            corpus={"prompts": 8},
            budget=1.0,
            client=client,
        )
        yield folder


@pytest.fixture(scope="module")
def run(place: Path) -> Iterator[dm.Run]:
    yield dm.open(place / "runs" / "demo")
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="module")
def encoder(run: dm.Run) -> Iterator[dm.TextEncoder]:
    with run.best().load() as encoder:
        yield encoder


@pytest.fixture
def cluster(place: Path) -> Iterator[ProfileCluster]:
    """Workers of an example's own, which it closes, scales or pins."""
    with ProfileCluster("local", workers=1) as cluster:
        cluster.client.wait_for_workers(1)
        yield cluster


@pytest.fixture
def names(
    request: pytest.FixtureRequest, place: Path, run: dm.Run, client, tmp_path: Path, monkeypatch
) -> dict[str, object]:
    """What an example uses without making it, in a working folder of its own."""
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bokeh.io, "show", lambda figure: None)  # which would start a browser
    made = {"dm": dm, "bokeh": bokeh, "run": run, "client": client, "Arm": Arm, "step": step}
    made["board"], made["texts"] = run.leaderboard(), ["one text", "another", "a third"]
    made["conv1"], made["conv2"] = np.random.default_rng(0).normal(size=(2, 30, 4))
    made["species"] = ["lark", "owl", "wren"] * 10
    example = request.node.callspec.params["name"]
    if example.endswith((".close", ".scale", "pin_workers")):
        cluster = request.getfixturevalue("cluster")
        made |= {"cluster": cluster, "client": cluster.client}
    if "TextEncoder." in example:
        made["encoder"] = request.getfixturevalue("encoder")
    return made


def test_examples_that_run_elsewhere_exist():
    assert ELSEWHERE.keys() <= EXAMPLES.keys()
    assert all((PACKAGE.parent / file).is_file() for file in ELSEWHERE.values())


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - ELSEWHERE.keys()))
def test_an_example_runs_as_it_stands(name, names):
    test = EXAMPLES[name]
    for example in test.examples:
        example.options.pop(doctest.SKIP, None)
    test.globs.update(names)
    shown: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(Checker(), verbose=False, optionflags=flags)
    assert runner.run(test, out=shown.append).failed == 0, "".join(shown)
