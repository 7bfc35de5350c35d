"""A model that reads texts as runs do: vectors of its layers, their metrics, and a smaller model
that ends at one.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daskmetrics.checkpoints import shipped
from daskmetrics.checkpoints.locations import Location, require_content, shipped_folder
from daskmetrics.checkpoints.shipped import ModelProtocol
from daskmetrics.config import Protocol
from daskmetrics.config.prompts import NO_PROMPTS, Prompts
from daskmetrics.core.errors import DataError, require_known
from daskmetrics.core.keys import seed_of
from daskmetrics.core.progress import share
from daskmetrics.core.text import is_encodable, plural
from daskmetrics.domain.readouts import Readout
from daskmetrics.metrics import Metric, views
from daskmetrics.metrics.engine import Reducer
from daskmetrics.models._model import LoadedModel
from daskmetrics.models._pooler import Pooler
from daskmetrics.models._save import save

if TYPE_CHECKING:
    import xarray


DEFAULT = Readout()


class TextEncoder:
    """Reads texts with layers of a model, as a run does.

    ``run.best().load()`` gives one that reads a single layer. As a context manager, it frees the
    model at the end.

    Attributes
    ----------
    protocol : ModelProtocol
        How texts become vectors.
    layers : tuple of int
        In ascending order; 0 is the embedding output.
    readout : Readout
        The pooling of `encode`, and the dimensions that an index stores.

    Examples
    --------
    >>> encoder = run.best().load()  # doctest: +SKIP
    >>> encoder.encode(["Which layer is best?"]).shape  # doctest: +SKIP
    (1, 384)
    """

    def __init__(
        self,
        model: LoadedModel,
        protocol: ModelProtocol,
        layers: Sequence[int],
        readout: Readout = DEFAULT,
    ) -> None:
        self.model = model
        self.protocol = protocol
        self.layers = tuple(layers)
        self.readout = readout

    @classmethod
    def load(
        cls,
        layer: int,
        readout: str,
        protocol: Mapping[str, Any],
        pickled: bool = False,
        **record: Any,
    ) -> TextEncoder:
        """Load the arm that a run `recorded`.

        That is a layer of a folder or hub id, with the protocol as it was done then. It is a
        `DataError` if the weights cannot be loaded, or the folder has another content or says
        something else than when the run began.
        """
        require_content(record, pickled)
        # the network of another time may have had other weights, so the location is one of its own
        unique = uuid.uuid4().hex
        location = Location(record["path"], record["revision"], unique, pickled)
        base = record.get("base")
        if base:
            below = Location(base["path"], base["revision"], unique, pickled)
            location = replace(location, base=below)
        read_by = Protocol(**{name: protocol[name] for name in Protocol.model_fields})
        folder = shipped_folder(location)
        modules = None
        if folder and "shipped" in protocol:
            modules = shipped.read(folder, pickled)
        prompts = NO_PROMPTS
        if "prompts" in protocol:
            prompts = Prompts(protocol["prompts"], protocol["default_prompt"])
        read = ModelProtocol(read_by, prompts, modules)
        if read.as_dict() != dict(protocol):
            raise DataError(
                f"'{location.path}' does not say any more how its states become vectors as it did"
                " when the run began. Restore the folder, or run again."
            )
        return cls(LoadedModel(location, read_by), read, [layer], Readout.parse(readout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model; the encoder cannot be used afterwards."""
        self.model.__exit__(None, None, None)

    def encode(self, texts: Sequence[str], prompt: str | None = None) -> NDArray[np.float32]:
        """Vectors of the deepest layer by the readout, (texts, dimensions).

        Parameters
        ----------
        texts : sequence of str
        prompt : str, optional
            Name of one of the model's prompts, such as ``query``; by default its default prompt, if
            it has one.

        Returns
        -------
        ndarray
            Of float32.

        Raises
        ------
        ConfigError
            If the model has no such prompt.

        Examples
        --------
        >>> encoder.encode(["one text", "another"]).shape  # doctest: +SKIP
        (2, 384)
        """
        deepest = self.layers[-1:]
        pooled = self._vectors(texts, deepest, self._prompt(prompt), self.readout.pooling)
        return self.readout.of(pooled[0])

    def embed(self, texts: Sequence[str], prompt: str | None = None) -> xarray.DataArray:
        """Vectors of all layers, (text, layer, dimension); see `daskmetrics.embed`."""
        import xarray

        vectors = self._vectors(texts, self.layers, self._prompt(prompt)).transpose(1, 0, 2)
        return xarray.DataArray(
            vectors,
            dims=("text", "layer", "dimension"),
            coords={"layer": list(self.layers)},
            name="vectors",
            attrs={"protocol": self.protocol.summary},
        )

    def measure(
        self, texts: Sequence[str], metrics: Sequence[Metric], seed: int = 0
    ) -> xarray.Dataset:
        """Metrics of all layers, with dimension layer; see `daskmetrics.measure`."""
        import xarray

        given = _checked(texts, fewest=2)
        texts = self.distinct(given)
        if len(texts) < len(given):
            warnings.warn(
                f"{len(given) - len(texts):,} of {len(given):,} texts have the tokens of another"
                " text, so that they do not count.",
                stacklevel=3,
            )
        reducer = Reducer(metrics, self.layers, len(texts))
        self.reduce(texts, reducer, seed)
        reduced = reducer.finish()
        variables: dict[str, Any] = {}
        for column, metric in enumerate(metrics):
            name = metric.name
            reasons = [
                f"layer {layer}: {reduced.reasons[layer, name]}"
                for layer in self.layers
                if (layer, name) in reduced.reasons
            ]
            stderr_attrs = {"units": metric.units, "description": metric.description}
            attrs = dict(stderr_attrs)
            if reasons:
                attrs["undefined"] = "; ".join(reasons)
            variables[name] = ("layer", reduced.values[:, column], attrs)
            variables[f"{name}_stderr"] = ("layer", reduced.stderr[:, column], stderr_attrs)
            variables[f"{name}_status"] = ("layer", reduced.status[:, column])
        return xarray.Dataset(
            variables, {"layer": list(self.layers)}, {"protocol": self.protocol.summary}
        )

    def distinct(self, texts: Sequence[str]) -> list[str]:
        """The texts whose tokens no earlier text has.

        Their vectors would be equal up to rounding, which metrics would measure. It is a
        `DataError` if all have the same.
        """
        pooler = Pooler(self.model, self.protocol, texts, self.protocol.prompts.of(None))
        rows = self.model.tokenizer(pooler.texts, self.model.max_length)
        first: dict[bytes, str] = {}
        for text, row in zip(texts, rows, strict=True):
            first.setdefault(row.tobytes(), text)
        if len(first) < min(2, len(texts)):
            raise DataError(
                f"All {len(texts)} texts have the same tokens; 2 or more different ones are needed."
            )
        return list(first.values())

    def reduce(self, texts: Sequence[str], reducer: Reducer, seed: int) -> None:
        """Add the states of all layers to a reducer.

        There is one forward pass over each view of the texts.
        """
        seed = seed_of(seed, "view")
        for number in range(reducer.views):
            seen = texts
            if number:
                seen = [views.view(text, seed, number) for text in texts]
                if seen == list(texts):
                    # views of a single word, such as a protein, are the word: the reducer reports
                    # what it lacks
                    break
            with share(1 / reducer.views):
                self._reduce_view(seen, reducer, number)

    def _reduce_view(self, texts: Sequence[str], reducer: Reducer, number: int) -> None:
        pooler = Pooler(self.model, self.protocol, texts, self.protocol.prompts.of(None))

        def take(layer: int, rows: Tensor, states: Tensor, mask: Tensor) -> None:
            eps = torch.finfo(states.dtype).eps
            wide = states.to(torch.promote_types(states.dtype, torch.float32))
            reducer.add(layer, rows, wide, mask, pooler(rows, wide, mask), number, eps)

        self.model.read(pooler.texts, self.layers, take)

    def save(self, folder: str | Path, card: str = "") -> Path:
        """Save the model, cut after the deepest layer, for sentence-transformers.

        The blocks after the layer are left out, so that the saved model has fewer parameters. Its
        vectors are compared with this encoder's before it is kept.

        Parameters
        ----------
        folder : str or Path
            A new or an empty folder.
        card : str
            Text of the model card: what was measured.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        ConfigError
            If the folder is not empty.
        DataError
            If the cut model cannot give the same vectors.

        Examples
        --------
        >>> encoder.save("my-model")  # doctest: +SKIP
        """
        return save(self.model, self.protocol, self.layers[-1], Path(folder), card, self.readout)

    def _vectors(
        self, texts: Sequence[str], layers: Sequence[int], before: str, pooling: str = ""
    ) -> NDArray[np.float32]:
        """Vectors (L, texts, D); a warning if some are not finite."""
        texts = _checked(texts, fewest=1)
        pooler = Pooler(self.model, self.protocol, texts, before, [pooling])
        (vectors,) = pooler.vectors(layers)
        is_finite = np.isfinite(vectors).all((0, 2))
        if not is_finite.all():
            warnings.warn(
                f"Vectors of {(~is_finite).sum():,} of {plural(len(texts), 'text')} are not finite;"
                " check the weights of the model and the dtype.",
                stacklevel=3,
            )
        return vectors

    def _prompt(self, name: str | None) -> str:
        prompts = self.protocol.prompts
        if name is None:
            return prompts.of(None)
        require_known("prompt", name, prompts.texts)
        return prompts.texts[name]


def _checked(texts: Sequence[str], fewest: int) -> Sequence[str]:
    """The texts as a list.

    It is a `DataError` if there are too few, or they are no texts.
    """
    if isinstance(texts, str):
        raise DataError(
            f"A list of texts is needed, got one text: {texts[:50]!r}. Write it as [text]."
        )
    if hasattr(texts, "columns"):  # a table is iterated by the names of its columns
        raise DataError(
            f"A list of texts is needed, got a {type(texts).__name__}. Give its column of texts, such"
            " as frame['text']."
        )
    items = list(texts)
    if len(items) < fewest:
        raise DataError(f"Got {plural(len(items), 'text')}; {fewest} or more are needed.")
    for index, item in enumerate(items):
        if not isinstance(item, str):
            raise DataError(f"Item {index} is a {type(item).__name__}; a text is needed.")
        if not is_encodable(item):
            raise DataError(
                f"Item {index} has half of a surrogate pair, as a text that was cut. Correct it:"
                f" {item!r:.80}"
            )
    return items
