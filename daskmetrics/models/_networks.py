"""Networks of this process: one per architecture, into which the weights of the next checkpoint are swapped.

One that has a checkpoint's weights already is handed out as it is: nothing is read for the next task's texts.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from daskmetrics.config._checkpoints import Location
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.models._forward import Anatomy, anatomy_of
from daskmetrics.models._tokens import transformers
from daskmetrics.models._weights import Prefetch, Weights, folder_of, open_weights

_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")  # do not shape a network
_IDLE = 2  # networks kept without being in use
SAFE_UNPICKLING = (2, 10)  # torch before had known holes in weights_only

Shape = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]


@dataclass(eq=False)
class Network:
    """A network with a checkpoint's weights, its parts, and how other weights get into it.

    Attributes
    ----------
    module : transformers.PreTrainedModel
        In evaluation mode, on its device.
    anatomy : Anatomy
    key : str
        Of the architecture, dtype and device.
    dtype : torch.dtype
    shape : tuple
        Names, shapes and dtypes in the files that the weights came from.
    names : dict or None
        Own name of each parameter and the files' name for it; None where weights cannot be swapped.
    holds : Location
        The checkpoint whose weights it has.
    """

    module: Any
    anatomy: Anatomy
    key: str
    dtype: torch.dtype
    shape: Shape
    names: dict[str, str] | None
    holds: Location

    def swap(self, location: Location, weights: Weights) -> bool:
        """Take over these weights; False, and nothing is changed, if they are not laid out like the present ones."""
        if self.names is None or shape_of(weights) != self.shape:
            return False
        own = _own(self.module)
        with torch.no_grad():
            for name, foreign in self.names.items():
                own[name].copy_(weights[foreign], non_blocking=True)
        self.holds = location
        return True


class Pool:
    """Loads networks, and keeps those that are not in use for the next checkpoint of their architecture."""

    def __init__(self) -> None:
        self.prefetch = Prefetch()
        self._idle: OrderedDict[str, Network] = OrderedDict()
        self._lock = Lock()

    def borrow(self, location: Location, dtype: torch.dtype, device: torch.device) -> Network:
        """A network with this checkpoint's weights, bit for bit as ``AutoModel.from_pretrained`` loads them.

        Raises
        ------
        DataError
            If the weights cannot be loaded.
        """
        key = key_of(location, dtype, device)
        with self._lock:
            idle = self._idle.pop(key, None)
        if idle is not None and idle.holds == location:
            return idle
        weights = self.prefetch.take(location) or open_weights(location)
        if idle is not None and weights is not None and idle.swap(location, weights):
            return idle
        return load(location, dtype, device, key, weights)

    def give_back(self, network: Network) -> None:
        """Let the next checkpoint have it."""
        if network.names is None:
            return
        with self._lock:
            self._idle[network.key] = network
            while len(self._idle) > _IDLE:
                self._idle.popitem(last=False)


POOL = Pool()
"""The networks of this process."""


def key_of(location: Location, dtype: torch.dtype, device: torch.device) -> str:
    """Names an architecture: what its configuration says, in which dtype and where."""
    folder = folder_of(location)
    about: object = location.path
    if folder is not None and (folder / "config.json").is_file():
        try:
            about = json.loads((folder / "config.json").read_text("utf-8"))
        except ValueError:
            about = str(folder)  # loading it will fail, and say why
    if isinstance(about, dict):
        about = {name: value for name, value in about.items() if name not in _VOLATILE}
    return sha256(json.dumps([about, str(dtype), str(device)], sort_keys=True).encode()).hexdigest()


def load(
    location: Location, dtype: torch.dtype, device: torch.device, key: str, weights: Weights | None = None
) -> Network:
    """A new network as transformers loads it.

    Parameters
    ----------
    location : Location
    dtype : torch.dtype
    device : torch.device
    key : str
        As `key_of` gives it.
    weights : mapping, optional
        The same weights; by comparing the two it is learnt under which names later ones can be swapped in.
    """
    module = _from_pretrained(location, dtype)
    names = None if weights is None else match(module, weights)
    shape = () if weights is None else shape_of(weights)
    module = module.to(device)
    return Network(module, anatomy_of(module), key, dtype, shape, names, location)


def shape_of(weights: Weights) -> Shape:
    """Names, shapes and dtypes of weights."""
    return tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in sorted(weights.items()))


def match(module: Any, weights: Weights) -> dict[str, str] | None:
    """The files' name of every parameter and saved buffer; None unless each is there and holds the very same numbers.

    Since what transformers made of the files is compared with the files, nothing needs to be known of the loader:
    prefixes of a model with a head are recognised, and an architecture whose weights are renamed, merged or reordered
    on loading is not swapped at all.
    """
    names: dict[str, str] = {}
    for own, tensor in _own(module).items():
        candidates = (own, f"{module.base_model_prefix}.{own}")
        same = (name for name in candidates if name in weights and torch.equal(tensor, weights[name].to(tensor.dtype)))
        name = next(same, None)
        if name is None:
            return None
        names[own] = name
    return names


def _own(module: Any) -> dict[str, Tensor]:
    """Everything that a checkpoint decides; tied weights once, and no buffer that follows from the configuration."""
    saved = module.state_dict()
    buffers = {name: tensor for name, tensor in module.named_buffers() if name in saved}
    return {**dict(module.named_parameters()), **buffers}


def _from_pretrained(location: Location, dtype: torch.dtype) -> Any:
    if location.pickled and tuple(map(int, torch.__version__.split(".")[:2])) < SAFE_UNPICKLING:
        raise ConfigError(f"Pickled weights need torch 2.10 or later, this is {torch.__version__}.")
    try:
        module, found = transformers().AutoModel.from_pretrained(
            location.path,
            revision=location.revision or "main",
            dtype=dtype,
            use_safetensors=None if location.pickled else True,  # None: safetensors where there are some
            weights_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:  # foreign files: whatever the loader makes of them
        raise DataError(f"Cannot load the weights in '{location.path}': {error}") from error
    # what the files lack is drawn at random by the loader; only a pooler, which no layer reads, may be
    lacking = sorted(name for name in found["missing_keys"] if "pooler" not in name)
    if lacking:
        raise DataError(f"The weights in '{location.path}' lack {len(lacking)} parameters, such as {lacking[0]}.")
    return module.eval()
