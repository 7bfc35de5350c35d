"""The protocol of one checkpoint: that of the configuration, what its model overrides, and what its
folder says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.checkpoints import shipped as shipped
from daskmetrics.checkpoints.shipped import Shipped
from daskmetrics.config.prompts import NO_PROMPTS, Prompts, configured
from daskmetrics.config.schema import Model, Protocol
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key


@dataclass(frozen=True)
class ModelProtocol:
    """How the texts of one checkpoint become vectors.

    ``base`` has the length, padding and pooling that hold for the checkpoint; the pooling is
    ``as_shipped`` exactly if ``shipped`` is given, which is what a sentence-transformers folder
    says.
    """

    base: Protocol
    prompts: Prompts = NO_PROMPTS
    shipped: Shipped | None = None

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values; those of the protocol alone if there are neither prompts nor
        modules.
        """
        values = self.base.model_dump(mode="json")
        if self.shipped:
            values["shipped"] = self.shipped.as_dict()
        return values | self.prompts.as_dict()

    @property
    def key(self) -> Key:
        return content_key(self.as_dict())

    @property
    def summary(self) -> str:
        """In a few words, such as ``as shipped (mean, normalize), 256 tokens, prompts: none``."""
        pooling = f"as shipped ({self.shipped.summary})" if self.shipped else self.base.pooling
        return f"{pooling}, {self.base.max_length:,} tokens, prompts: {self.prompts.summary}"


def protocol_of(protocol: Protocol, model: Model, folder: Path | None) -> ModelProtocol:
    """The protocol of a checkpoint of this model, with its weights in this folder (None: not on
    this machine).

    Raises
    ------
    ConfigError
        If the model is to be read as shipped and is not a sentence-transformers folder, or is one
        that cannot be applied here.
    """
    pooling = model.pooling or protocol.pooling
    modules = None
    if folder and pooling == "as_shipped":
        modules = shipped.read(folder, model.pickled)
    changes: dict[str, Any] = {"pooling": pooling}
    if modules:
        changes |= {
            "padding": modules.padding,
            "max_length": modules.max_length or protocol.max_length,
        }
    elif pooling == "as_shipped":
        if model.pooling:
            raise ConfigError(
                f"Model '{model.name}' has 'pooling: as_shipped', but {_missing(model, folder)}. "
                "Give a folder of sentence-transformers, or choose 'pooling: mean' (or last, cls)."
            )
        changes["pooling"] = "mean"
    if model.max_length:
        changes["max_length"] = model.max_length
    prompts = Prompts(modules.prompts, modules.default_prompt) if modules else NO_PROMPTS
    if model.prompts is not None:
        prompts = configured(model.prompts)
    return ModelProtocol(protocol.model_copy(update=changes), prompts, modules)


def _missing(model: Model, folder: Path | None) -> str:
    if model.train:
        return "it is trained here"
    if folder is None:
        return f"{model.source} is not in the hub's cache on this machine, so what it ships is not known"
    return f"'{folder}' has no {shipped.MODULES}"


def require_known(protocol: Protocol, model: Model, missing: Sequence[str]) -> None:
    """Check that revisions that are not in the hub's cache are no sentence-transformers folders to
    be read as shipped.

    Their files are read when a run is prepared, so that they must be on this machine before; a
    `ConfigError` otherwise.
    """
    if not missing or (model.pooling or protocol.pooling) != "as_shipped":
        return
    from huggingface_hub import HfApi

    if HfApi().file_exists(str(model.source), shipped.MODULES, revision=missing[0]):
        raise ConfigError(
            f"Model '{model.name}': {model.source} is of sentence-transformers, but {missing[0]} is not in the hub's "
            f"cache, so how it is to be read is not known. Fetch it: hf download {model.source} --revision "
            f"{missing[0]}. Or choose 'pooling: mean' (or last, cls) for the model."
        )
