"""Python source that loads an arm with transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daskmetrics.core.names import Arm

_FINAL_NORM = {"gpt_neox": "final_layer_norm", "gpt2": "ln_f", "llama": "norm", "mistral": "norm", "qwen2": "norm"}

_ANY_NORM = """norms = ("final_layer_norm", "ln_f", "norm", "norm_f")  # names in common architectures
final_norm = next((getattr(model, name) for name in norms if hasattr(model, name)), torch.nn.Identity())"""

_FORWARD = """output = model(batch["input_ids"], attention_mask=batch["attention_mask"], output_hidden_states=True)
    states = output.hidden_states[{layer}]"""

_LAST_RAW = """raw = []  # hidden_states[{layer}] is after the norm, so a hook captures the input of the norm
    hook = final_norm.register_forward_pre_hook(lambda norm, args: raw.append(args[0]))
    model(batch["input_ids"], attention_mask=batch["attention_mask"])
    hook.remove()
    states = raw[0]"""

_SHIPPED = """features = {{"token_embeddings": states.float(), "attention_mask": batch["attention_mask"]}}{skipped}
    for module in modules:
        features = module(features)
    return features["sentence_embedding"]{kept}"""

_SKIPPED = """
    ids = tokenizer(prompt)["input_ids"] if prompt else [None]
    features["prompt_length"] = len(ids) - (ids[-1] in (None, *tokenizer.all_special_ids))  # not pooled"""

_POOLING = {
    "mean": """mask = batch["attention_mask"].unsqueeze(-1)
    return (states.float() * mask).sum(1) / mask.sum(1)""",
    "last": """mask = batch["attention_mask"]
    last = (mask * torch.arange(mask.shape[1])).argmax(1)  # the last real token
    return states[torch.arange(len(states)), last].float()""",
    "cls": """first = batch["attention_mask"].argmax(1)  # the first real token
    return states[torch.arange(len(states)), first].float()""",
}


def snippet(arm: Arm, location: Mapping[str, Any], protocol: Mapping[str, Any]) -> str:
    """Python source of a function ``embed(texts)`` that returns the vectors of an arm, (n, D).

    ``location`` has the ``path`` of the weights, their ``revision`` or None, and the model's ``depth``; ``protocol``
    is what was done for the model: the keys of the section, perhaps with ``prompts`` and ``shipped``. If there are
    prompts, the function takes one as its second argument.
    """
    revision = f", revision={location['revision']!r}" if location["revision"] else ""
    norm, states = _states(arm, location, protocol)
    shipped, parameters, texts = _shipped(location, revision, protocol), "texts", "texts"
    if prompts := protocol.get("prompts"):
        parameters = f"texts, prompt={prompts.get(protocol['default_prompt'], '')!r}"
        shipped += f"prompts = {prompts!r}  # to choose from\n"
        texts = "[prompt + text for text in texts]"
    if protocol.get("shipped", {}).get("lower_case"):
        texts = f"[text.lower() for text in {texts}]"
    return f"""import torch
from transformers import AutoModel, AutoTokenizer

path = {location["path"]!r}
tokenizer = AutoTokenizer.from_pretrained(path{revision}, padding_side={protocol["padding"]!r})
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model = AutoModel.from_pretrained(path{revision}, dtype=torch.{protocol["dtype"]}).eval()
max_length = min({protocol["max_length"]}, getattr(model.config, "max_position_embeddings", {protocol["max_length"]}))
{shipped}{norm}

@torch.inference_mode()
def embed({parameters}):
    batch = tokenizer({texts}, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    {states}
    {_pooling(protocol)}


print(embed(["Which layer is best?"]).shape)
"""


def _shipped(location: Mapping[str, Any], revision: str, protocol: Mapping[str, Any]) -> str:
    """Source that loads the modules of a sentence-transformers folder, if they are used."""
    if "shipped" not in protocol:
        return ""
    folder = Path(location["path"])
    root = folder if not folder.is_dir() or (folder / "modules.json").is_file() else folder.parent
    return (
        "from sentence_transformers import SentenceTransformer\n\n"
        f'modules = list(SentenceTransformer({str(root)!r}{revision}, device="cpu").eval())[1:]  # after the network\n'
    )


def _pooling(protocol: Mapping[str, Any]) -> str:
    """Source that returns the vectors of the states."""
    shipped = protocol.get("shipped")
    if shipped is None:
        return _POOLING[{"as_shipped": "mean"}.get(protocol["pooling"], protocol["pooling"])]
    kept = f"[:, :{shipped['dimensions']}]" if shipped["dimensions"] else ""
    return _SHIPPED.format(
        kept=kept, skipped="" if shipped["include_prompt"] or "prompts" not in protocol else _SKIPPED
    )


def _states(arm: Arm, location: Mapping[str, Any], protocol: Mapping[str, Any]) -> tuple[str, str]:
    """Source that finds the final norm, if it is needed, and source of the states (n, tokens, D)."""
    last = arm.layer == location["depth"]
    norm = _final_norm(Path(location["path"]))
    forward = _FORWARD.format(layer=arm.layer)
    if norm and protocol["state_norm"] == "raw" and last:
        return norm + "\n", _LAST_RAW.format(layer=arm.layer)
    if norm and protocol["state_norm"] == "final_ln" and not last:  # the last layer is after the norm
        return norm + "\n", f"{forward}\n    states = final_norm(states)  # as if the model ended at this layer"
    return "", forward


def _final_norm(folder: Path) -> str | None:
    """Source that finds the norm after the last block; None for the BERT family, which has none."""
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (OSError, ValueError, KeyError):
        return _ANY_NORM  # a hub id
    if kind in ("bert", "roberta", "distilbert", "mpnet"):
        return None
    return f"final_norm = model.{_FINAL_NORM[kind]}" if kind in _FINAL_NORM else _ANY_NORM
