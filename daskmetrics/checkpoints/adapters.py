"""Folders of LoRA adapters as the library ``peft`` writes them; read without torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.checkpoints.shipped import read_json
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.serialization import readable
from daskmetrics.core.text import listed

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# others change the weights of the base when they begin
_PLAIN = (
    True,
    False,
    None,
    "gaussian",
    "eva",
    "orthogonal",
)
_KNOWN = (
    *(
        "peft_type",
        "peft_version",
        "task_type",
        "auto_mapping",
        "inference_mode",
        "revision",
        "base_model_name_or_path",
    ),
    *(
        "r",
        "lora_alpha",
        "rank_pattern",
        "alpha_pattern",
        "use_rslora",
        "lora_dropout",
        "lora_bias",
        "bias",
    ),
    *(
        "target_modules",
        "exclude_modules",
        "layers_to_transform",
        "layers_pattern",
        "modules_to_save",
    ),
    *("fan_in_fan_out", "init_lora_weights", "eva_config", "megatron_core", "qalora_group_size"),
)
"""Options that are applied here, or that change no number after training."""


@dataclass(frozen=True)
class Adapter:
    """What the configuration of a LoRA adapter says."""

    base: str  # a folder, or a hub id
    revision: str  # of the hub
    alpha: float
    alphas: Mapping[str, float]  # by a pattern of names of modules, in place of alpha
    rank_stabilized: bool

    def scale(self, module: str, rank: int) -> float:
        """The factor of the product of the two matrices, for a module of this name.

        Hu et al. (2022), section 4.1: alpha / r; Kalajdzievski (2023): alpha / sqrt(r),
        rank-stabilized.
        """
        patterns = (pattern for pattern in self.alphas if re.match(rf"(.*\.)?({pattern})$", module))
        alpha = self.alphas.get(next(patterns, ""), self.alpha)
        if self.rank_stabilized:
            return alpha / math.sqrt(rank)
        return alpha / rank


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter, and not the weights of a whole model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def read(folder: Path) -> Adapter:
    """The adapter in a folder.

    Raises
    ------
    ConfigError
        If it is not a plain LoRA adapter in a .safetensors file, with the reason.
    DataError
        If its configuration cannot be read.
    """
    with readable("The adapter", folder / CONFIG):
        return _read(folder, read_json(folder / CONFIG, dict))


def _read(folder: Path, config: Mapping[str, Any]) -> Adapter:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise _refused(folder, f"it is of the type {kind}, where LORA is expected")
    unknown = sorted(name for name, value in config.items() if value and name not in _KNOWN)
    if unknown:
        raise _refused(folder, f"it uses {listed(unknown)}, which is not applied here")
    start = config.get("init_lora_weights")
    if start not in _PLAIN:
        raise _refused(
            folder, f"'init_lora_weights: {start}' changes the weights of the base model"
        )
    if not (folder / WEIGHTS).is_file():
        raise _refused(folder, f"it has no {WEIGHTS}")
    return Adapter(
        base=str(config.get("base_model_name_or_path") or ""),
        revision=str(config.get("revision") or "main"),
        alpha=float(config.get("lora_alpha", 8)),
        alphas={
            str(name): float(alpha) for name, alpha in (config.get("alpha_pattern") or {}).items()
        },
        rank_stabilized=bool(config.get("use_rslora")),
    )


def _refused(folder: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"The adapter in '{folder}' cannot be read: {reason}. Merge it into its base model with merge_and_unload() of "
        "peft, save that with save_pretrained(), and give the folder of the merged model."
    )
