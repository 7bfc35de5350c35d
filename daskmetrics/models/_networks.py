"""From the files of a checkpoint to a network with its weights.

A process keeps a network per architecture, into which the weights of the next checkpoint are
copied; they are read in the background if wanted. A network that already has the weights of the
requested checkpoint is reused without reading a file.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from zipfile import is_zipfile

import torch
from torch import Tensor

from daskmetrics.checkpoints.checks import weight_headers
from daskmetrics.checkpoints.layout import NETWORK, weight_files
from daskmetrics.checkpoints.locations import Location, fetched, folder_of, weights_alone
from daskmetrics.core.errors import ConfigError, DaskmetricsError, DataError, foreign_errors
from daskmetrics.core.keys import content_key
from daskmetrics.core.serialization import read_json
from daskmetrics.models._adapters import adapted
from daskmetrics.models._parts import NetworkParts, parts_of
from daskmetrics.models._tokens import InMemory, import_transformers
from daskmetrics.models._whole import require_one_architecture, require_whole

# do not change a network
_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")
_IDLE = 2  # networks kept while not in use
SAFE_UNPICKLING = (2, 10)  # earlier torch has known holes in weights_only

log = logging.getLogger(__name__)

Weights = Mapping[str, Tensor]
Layout = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
"""Names, shapes and dtypes of weights."""


def open_weights(location: Location) -> Weights:
    """All tensors by their names in the files, memory-mapped.

    A `DataError` says why they cannot be read.
    """
    from safetensors import safe_open

    release = tuple(map(int, torch.__version__.split(".")[:2]))
    if location.pickled and release < SAFE_UNPICKLING:
        raise ConfigError(f"Pickled weights need torch 2.10 or later, this is {torch.__version__}.")
    weights: dict[str, Tensor] = {}
    with foreign_errors(f"Cannot load the weights in '{location.path}'", DataError):
        folder = fetched(location)
        weight_headers(folder)
        for name in weight_files(folder, location.pickled):
            if name.endswith(".safetensors"):
                with safe_open(folder / name, framework="pt") as file:
                    weights |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            elif name.endswith(".bin"):
                # only the format of torch 1.6 and later can be mapped
                mapped = is_zipfile(folder / name)
                weights |= torch.load(folder / name, "cpu", weights_only=True, mmap=mapped)
    return weights


def pinned(tensor: Tensor) -> Tensor:
    """A copy in pinned (page-locked) memory.

    A GPU reads it beside its work. It is in ordinary memory where none can be pinned.
    """
    try:
        return tensor.pin_memory()
    except RuntimeError as error:
        _warn_once(" ".join(str(error).split()))
        return tensor.clone()


@cache
def _warn_once(reason: str) -> None:
    log.warning("Copies to the GPU wait for its work: no memory could be pinned (%s).", reason)


class Prefetch:
    """Reads the weights of one checkpoint in the background, and holds no others."""

    def __init__(self) -> None:
        self._location: Location | None = None
        self._weights: Weights = {}
        self._thread: Thread | None = None

    def begin(
        self, location: Location, pin: bool = False, names: Collection[str] | None = None
    ) -> None:
        """Start to read, unless another checkpoint is being read.

        Weights that were read and not taken are dropped. Tensors with other ``names``, such as
        those of a head, stay in the files. A GPU copies asynchronously from pinned (page-locked)
        memory.
        """
        if location == self._location or (self._thread is not None and self._thread.is_alive()):
            return
        self._location = location
        self._weights = {}
        self._thread = Thread(
            target=self._read, args=(location, pin, names), name="prefetch", daemon=True
        )
        self._thread.start()

    def take(self, location: Location) -> Weights:
        """The weights of this checkpoint, if they were read.

        It waits for them if they are being read.
        """
        weights: Weights = {}
        if location == self._location:
            if self._thread is not None:
                self._thread.join()
            weights = self._weights
        self._location = None
        self._weights = {}
        return weights

    def _read(self, location: Location, pin: bool, names: Collection[str] | None) -> None:
        weights: dict[str, Tensor] = {}
        with suppress(
            DaskmetricsError
        ):  # who needs them reads them again, and reports what is wrong
            weights |= open_weights(location)
        copy = pinned if pin else torch.clone
        for name, tensor in weights.items():
            if names is None or name in names:
                weights[name] = copy(tensor)
        if location == self._location:
            self._weights = weights


@dataclass(eq=False)
class Network:
    """A network into which other weights can be copied."""

    module: Any  # in evaluation mode, on its device
    parts: NetworkParts
    key: str  # of the architecture, dtype and device
    dtype: torch.dtype
    layout: Layout  # of the files that the weights came from
    # in the files, by parameter; None if weights cannot be copied into the module
    names: dict[str, str] | None
    location: Location | InMemory  # of the checkpoint whose weights it has
    base: Location | None = None  # whose weights an adapter has changed
    # parameters of the base that the adapters changed
    _of_base: dict[str, Tensor] = field(default_factory=dict)
    is_stable: bool = True  # whether a forward pass leaves its weights and its settings as they are

    def swap(self, location: Location, weights: Weights) -> bool:
        """Copy weights of the same layout into the network.

        Returns False, changing nothing, if the layout differs.
        """
        if self.names is None or layout_of(weights) != self.layout:
            return False
        parameters = _parameters(self.module)
        with torch.no_grad():
            for name, name_in_file in self.names.items():
                parameters[name].copy_(weights[name_in_file], non_blocking=True)
        self.location = location
        self.base = None
        self._of_base.clear()
        self.parts.numberings.clear()
        return True

    def adapt(self, location: Location, weights: Weights) -> None:
        """Add an adapter to the weights of its base.

        They are kept where an adapter changes them.
        """
        if not self.is_stable:
            raise DataError(
                f"The adapter in '{location.path}' cannot be added: a {type(self.module).__name__}"
                " changes its own weights or settings when it reads. Merge it into its base with"
                " merge_and_unload() of peft."
            )
        parameters = dict(self.module.named_parameters())
        with torch.no_grad():
            if self.base is not None:
                # subtracting the adapter before would leave errors of rounding
                for name, tensor in self._of_base.items():
                    parameters[name].copy_(tensor)
                self.location = self.base
                self.base = None
            self.parts.numberings.clear()
            changed = adapted(self.module, weights, location.path)
            for name, tensor in changed.items():
                self._of_base.setdefault(name, parameters[name].clone())
                parameters[name].copy_(tensor)
        self.location = location
        self.base = location.base


class NetworkPool:
    """Loads networks and keeps idle ones for later checkpoints."""

    def __init__(self) -> None:
        self.prefetch = Prefetch()
        self._idle: OrderedDict[str, Network] = OrderedDict()
        self._lock = Lock()

    def borrow(
        self,
        location: Location | InMemory,
        dtype: torch.dtype,
        device: torch.device,
        read_ahead: bool = True,
    ) -> Network:
        """A network with this checkpoint's weights.

        They are those of ``from_pretrained``, bit for bit. ``read_ahead=False`` leaves the weights
        that were read ahead to the checkpoint that is loaded next.
        """
        if isinstance(location, InMemory):
            module = location.module
            if module.dtype != dtype:
                module = deepcopy(module).to(dtype)
            return Network(module, parts_of(module), f"{id(module)}", dtype, (), None, location)
        key = key_of(location, dtype, device)
        with self._lock:
            idle = self._idle.pop(key, None)
        if idle is not None and idle.location == location:
            return idle
        weights: Weights = {}
        if read_ahead:
            weights = self.prefetch.take(location)
        weights = weights or open_weights(location)
        if location.base is None:
            if idle is not None and idle.swap(location, weights):
                return idle
            return load(location, dtype, device, key, weights)
        if idle is None or location.base not in (idle.base, idle.location):
            if idle is not None:
                self.give_back(idle)
            idle = self.borrow(location.base, dtype, device, read_ahead=False)
        try:
            idle.adapt(location, weights)
        except DataError:
            self.give_back(idle)
            raise
        return idle

    def give_back(self, network: Network) -> None:
        """Return a network for the next checkpoint to use."""
        if network.names is None and network.base is None:
            return
        with self._lock:
            self._idle[network.key] = network
            while len(self._idle) > _IDLE:
                self._idle.popitem(last=False)


NETWORKS = NetworkPool()
"""The networks of this process."""


def key_of(location: Location, dtype: torch.dtype, device: torch.device) -> str:
    """Key of an architecture: its configuration, the dtype and the device."""
    location = location.base or location
    folder = folder_of(location)
    config = {"": location.path}
    # a file that cannot be read: loading it will fail and report why
    with suppress(DataError):
        config = read_json((folder or Path(location.path)) / NETWORK, dict)
    for name in _VOLATILE:
        config.pop(name, None)
    return content_key(config, str(dtype), str(device))


def load(
    location: Location,
    dtype: torch.dtype,
    device: torch.device,
    key: str,
    weights: Weights,
) -> Network:
    """Load a new network with transformers.

    Comparing it with the same weights as read from the files gives the names under which later
    weights are copied in.
    """
    module = load_module(location, dtype, weights)
    if location.rolling:  # its files are removed later: the parameters must not be views of them
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = tensor.data.clone()
    names = match(module, weights)
    layout = layout_of(weights)
    module = module.to(device)
    before = _state_of(module)
    network_parts = parts_of(module)
    is_stable = _state_of(module) == before
    if not is_stable:  # other weights would meet what this checkpoint has left in the network
        names = None
    return Network(module, network_parts, key, dtype, layout, names, location, is_stable=is_stable)


def _state_of(module: Any) -> object:
    """What a forward pass should leave as it is.

    RWKV divides its weights at the first one, and BigBird replaces its attention after a short
    text.
    """
    versions = [(tensor.data_ptr(), tensor._version) for tensor in _parameters(module).values()]
    kinds = [type(layer) for layer in module.modules()]
    return module.config.to_dict(), kinds, versions


def layout_of(weights: Weights) -> Layout:
    """Names, shapes and dtypes of weights."""
    return tuple(
        (name, tuple(tensor.shape), tensor.dtype) for name, tensor in sorted(weights.items())
    )


def match(module: Any, weights: Weights) -> dict[str, str] | None:
    """The name in the files of every parameter and saved buffer.

    None unless the files have each with equal numbers. Comparing numbers needs no knowledge of the
    loader: the prefix of a model with a head is recognised, and an architecture whose weights are
    renamed, merged or reordered on loading gives None.
    """
    names: dict[str, str] = {}
    # a tied weight that the files have twice may be two in the next checkpoint
    tied = module.state_dict().keys() - _parameters(module).keys()
    if any(name in weights or f"{module.base_model_prefix}.{name}" in weights for name in tied):
        return None
    for name, tensor in _parameters(module).items():
        for key in (f"{module.base_model_prefix}.{name}", name):
            if key in weights and torch.equal(tensor, weights[key].to(tensor.dtype)):
                names[name] = key
        if name not in names:
            return None
    return names


def _parameters(module: Any) -> dict[str, Tensor]:
    """Parameters and saved buffers, tied weights once."""
    saved = module.state_dict()
    buffers = {name: tensor for name, tensor in module.named_buffers() if name in saved}
    return {**dict(module.named_parameters()), **buffers}


def load_module(location: Location, dtype: torch.dtype, weights: Weights) -> Any:
    """A network of transformers in evaluation mode.

    It has every weight of the files, which are those of `open_weights`.
    """
    with foreign_errors(f"Cannot load the weights in '{location.path}'", DataError):
        transformers = import_transformers()
        with weights_alone(location) as folder:
            config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
            require_one_architecture(config, transformers, location.path)
            # of an encoder-decoder model only the encoder, where transformers can; by the class,
            # since a T5 that was saved as an encoder says of itself that it has no decoder
            auto_class = transformers.AutoModel
            has_decoder = type(config).is_encoder_decoder or config.is_encoder_decoder
            if has_decoder and type(config) in transformers.MODEL_FOR_TEXT_ENCODING_MAPPING:
                auto_class = transformers.AutoModelForTextEncoding
            module, info = auto_class.from_pretrained(
                folder,
                trust_remote_code=False,
                dtype=dtype,
                # None: safetensors where there are some
                use_safetensors=None if location.pickled else True,
                weights_only=True,
                output_loading_info=True,
            )
        module.config.name_or_path = location.path
    require_whole(module, info, weights, location.path)
    return module.eval()
