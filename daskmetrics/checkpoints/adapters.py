"""A LoRA adapter in a folder, as the library ``peft`` writes it; read without that library."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from daskmetrics.checkpoints.layout import ADAPTER, ADAPTER_WEIGHTS
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.serialization import read_json
from daskmetrics.core.text import listed

# values of init_lora_weights; others change the weights of the base when they begin
_PLAIN = (True, False, None, "gaussian", "eva", "orthogonal")
# options that are applied here, or that change no number after training
_KNOWN = {
    "peft_type",
    "peft_version",
    "task_type",
    "auto_mapping",
    "inference_mode",
    "revision",
    "base_model_name_or_path",
    "r",
    "lora_alpha",
    "rank_pattern",
    "alpha_pattern",
    "use_rslora",
    "lora_dropout",
    "lora_bias",
    "bias",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "modules_to_save",
    "fan_in_fan_out",
    "init_lora_weights",
    "eva_config",
    "megatron_core",
    "qalora_group_size",
}


@dataclass(frozen=True)
class Adapter:
    """The base model of an adapter, by its configuration."""

    base: str  # a folder, or a hub id
    revision: str  # of the hub


def read_adapter(folder: Path) -> Adapter:
    """The LoRA adapter in a folder.

    Raises
    ------
    ConfigError
        If it is not a plain LoRA adapter in a .safetensors file, with the reason, or ``peft`` is not
        installed.
    DataError
        If its configuration cannot be read.
    """
    config = read_json(folder / ADAPTER, dict)
    problem = _problem(config)
    if not problem and not (folder / ADAPTER_WEIGHTS).is_file():
        problem = f"it has no {ADAPTER_WEIGHTS}"
    if problem:
        raise ConfigError(
            f"The adapter in '{folder}' cannot be read: {problem}. Merge it into its base model"
            " with merge_and_unload() of peft, save that with save_pretrained(), and give the"
            " folder of the merged model."
        )
    require_peft(str(folder))
    return Adapter(
        base=str(config.get("base_model_name_or_path") or ""),
        revision=str(config.get("revision") or "main"),
    )


def _problem(config: dict[str, Any]) -> str:
    """Why such an adapter is not applied; empty if it is."""
    kind = config.get("peft_type")
    start = config.get("init_lora_weights")
    unknown = sorted(name for name, value in config.items() if value and name not in _KNOWN)
    if kind != "LORA":
        return f"it is of the type {kind}, where LORA is expected"
    if unknown:
        return f"it uses {listed(unknown)}, which is not applied here"
    if start not in _PLAIN:
        return f"'init_lora_weights: {start}' changes the weights of the base model"
    return ""


def require_peft(folder: str) -> None:
    """Raise a `ConfigError` unless peft is installed, which merges adapters."""
    if find_spec("peft") is None:
        raise ConfigError(
            f"The LoRA adapter in '{folder}' needs peft: pip install 'daskmetrics[peft]'"
        )
