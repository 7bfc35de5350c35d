"""Tasks of the Massive Text Embedding Benchmark, scored on embeddings that were made elsewhere.

The benchmark runs twice. The first time an encoder notes every text it is handed; the second time it looks each text's
vector up. So one forward pass of a checkpoint serves the scores of all its layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.arms import Key, content_key
from daskmetrics.errors import ConfigError, DataError
from daskmetrics.tasks.presets import LAYER_BY_LAYER
from daskmetrics.tasks.task import Embeddings, Pooling, Score

_MAIN_SCORES: Mapping[str, str] = {
    "classification": "accuracy",
    "clustering": "v_measure",
    "pair_classification": "max_ap",
    "reranking": "map_at_1000",
    "retrieval": "ndcg_at_10",
    "sts": "cosine_spearman",
}
_DIMENSIONS = 8  # of the vectors while texts are noted; any will do


@dataclass(frozen=True)
class MtebTask:
    """One task of the benchmark; nothing is imported or loaded before its texts are asked for.

    Attributes
    ----------
    benchmark_name : str
        As the benchmark calls it, such as ``Banking77Classification``.
    load : callable, optional
        Makes the benchmark's task object, for a task that the benchmark does not list (one on local data).
    """

    benchmark_name: str
    load: Callable[[], Any] | None = None
    pooling: Pooling | None = None

    @property
    def name(self) -> str:
        return f"mteb:{self.benchmark_name}"

    @property
    def kind(self) -> str:
        """Known without the benchmark for the tasks of the paper, otherwise ``benchmark``."""
        return LAYER_BY_LAYER.get(self.benchmark_name, "benchmark")

    @property
    def main_score(self) -> str:
        return _MAIN_SCORES.get(self.kind, "main_score")

    @property
    def description(self) -> str:
        return f"{self.benchmark_name} of MTEB"

    @property
    def key(self) -> Key:
        # a release of the benchmark pins the revision of each data set
        return content_key("task", "mteb", _version(), self.benchmark_name, self.pooling)

    @property
    def is_local(self) -> bool:
        return False  # the benchmark does not tell whether a data set is cached

    def texts(self) -> Sequence[str]:
        """Every distinct text that the benchmark hands to an encoder.

        Raises
        ------
        ConfigError
            If the benchmark is not installed, or the task's data is neither cached nor to be had.
        """
        try:
            return _texts(self._loader())
        except ConfigError:
            raise
        except Exception as error:  # whatever the benchmark and the hub make of data that is not there
            raise ConfigError(
                f"The data of '{self.name}' cannot be loaded ({type(error).__name__}: {error}). Fetch it where there "
                f"is a network: python -c \"import mteb; mteb.get_task('{self.benchmark_name}').load_data()\""
            ) from None

    def evaluate(self, embeddings: Embeddings, seed: int) -> Score:
        """The benchmark's main score; it draws its own samples from its own fixed seed, so `seed` is not used.

        The error is that over the benchmark's repetitions where it has any. Otherwise it is that of a mean over all
        texts of values between 0 and 1, at most ``sqrt(v (1 - v) / n)``: an order of magnitude.
        """
        texts = self.texts()
        if embeddings.ndim != 2 or len(embeddings) != len(texts):
            raise DataError(f"Task '{self.name}' wants embeddings of shape ({len(texts)}, D), got {embeddings.shape}.")
        rows = {text: row for row, text in enumerate(texts)}
        table = np.asarray(embeddings, dtype=np.float32)
        task = self._loader()()
        result = _run(task, lambda batch: table[[rows[text] for text in batch]])
        return _score(result, task.metadata.main_score, len(texts))

    def _loader(self) -> Callable[[], Any]:
        return self.load or partial(_load, self.benchmark_name)


def _load(name: str) -> Any:
    return _mteb().get_task(name)


@cache
def _texts(load: Callable[[], Any]) -> tuple[str, ...]:
    seen: dict[str, None] = {}

    def note(batch: list[str]) -> NDArray[np.float32]:
        seen.update(dict.fromkeys(batch))
        # distinct vectors: probes refuse features that do not vary
        return np.random.default_rng(len(seen)).normal(size=(len(batch), _DIMENSIONS)).astype(np.float32)

    _run(load(), note)
    return tuple(seen)


def _run(task: Any, embed: Callable[[list[str]], NDArray[np.float32]]) -> Any:
    """The benchmark's result for an encoder that is only a function from texts to vectors.

    Wants a new `task` object each time: the benchmark's clustering changes its object while it scores.
    """
    results = _mteb().evaluate(_encoder(embed), task, cache=None, co2_tracker=False, show_progress_bar=False)
    return results.task_results[0]


def _encoder(embed: Callable[[list[str]], NDArray[np.float32]]) -> Any:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class Lookup(AbsEncoder):  # type: ignore[misc]
        """What the benchmark takes for a model."""

        def __init__(self) -> None:
            self.model = None
            self.mteb_model_meta = ModelMeta.create_empty({"name": "daskmetrics/lookup", "revision": "1"})

        def encode(self, inputs: Any, **_: Any) -> NDArray[np.float32]:
            return np.concatenate([embed(list(batch["text"])) for batch in inputs])

    return Lookup()


def _score(result: Any, main: str, n: int) -> Score:
    value = float(result.get_score())
    if not math.isfinite(value):
        raise DataError(f"The benchmark gave {value} for task '{result.task_name}'.")
    repeated = _repetitions(result, main)
    if len(repeated) > 1:
        return Score(value, float(np.std(repeated, ddof=1) / math.sqrt(len(repeated))), len(repeated))
    return Score(value, math.sqrt(max(0.0, value * (1 - value)) / n), n)


def _repetitions(result: Any, main: str) -> list[float]:
    """The main score of every repetition, where the benchmark repeats (classification)."""
    subsets = [subset for split in result.scores.values() for subset in split]
    runs = [run for subset in subsets for run in subset.get("scores_per_experiment", ())]
    return [float(run[main]) for run in runs if main in run]


def _mteb() -> Any:
    try:
        import mteb
    except ImportError:
        raise ConfigError("Tasks 'mteb:...' need the benchmark itself: pip install 'daskmetrics[mteb]'") from None
    return mteb


def _version() -> str | None:
    try:
        return version("mteb")
    except PackageNotFoundError:
        return None
