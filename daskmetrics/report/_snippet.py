"""Python source that loads an arm with transformers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daskmetrics.config._shipped import root_of
from daskmetrics.core._readouts import Readout
from daskmetrics.core.names import Arm

RUN = Path("runs/demo")

_FIND_NORM = """calls = []  # of the modules outside the blocks, whose names have no number
hooks = [
    module.register_forward_hook(lambda module, given, output: calls.append((module, output)))
    for name, module in model.named_modules()
    if name and not any(part.isdigit() for part in name.split("."))
]
last = model(tokenizer("any text", return_tensors="pt")["input_ids"]).last_hidden_state
for hook in hooks:
    hook.remove()
norms = (m for m, out in calls if torch.is_tensor(out) and torch.equal(out.reshape(-1), last.reshape(-1)))
final_norm = next(norms, torch.nn.Identity())  # the first module that gives the last hidden state"""

_FORWARD = """output = model(batch["input_ids"], attention_mask=batch["attention_mask"], output_hidden_states=True)
    states = output.hidden_states[{layer}]"""

_LAST_RAW = """raw = []  # hidden_states[{layer}] is after the norm, so a hook captures the input of the norm
    hook = final_norm.register_forward_pre_hook(lambda norm, args: raw.append(args[0]))
    output = model(batch["input_ids"], attention_mask=batch["attention_mask"])
    hook.remove()
    states = raw[0] if raw else output.last_hidden_state  # encoders such as BERT have no final norm"""

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
    "weighted": """mask = batch["attention_mask"]
    weights = (mask.cumsum(1) * mask).unsqueeze(-1)  # the n-th token counts n times
    return (states.float() * weights).sum(1) / weights.sum(1)""",
    "max": """mask = batch["attention_mask"].unsqueeze(-1).bool()
    return states.float().masked_fill(~mask, -torch.inf).amax(1)""",
}

_STORED = {
    "float32": "vectors",
    "float16": "vectors.half().float()  # what an index that stores float16 returns",
    "binary": "torch.where(vectors > 0, 1.0, -1.0)  # signs, of which an index stores the bits",
}

_BY_RUN = """import daskmetrics as dm

# {why}
encoder = dm.open({folder!r}).best().load()
print(encoder.encode(["Which layer is best?"]).shape)
print(encoder.encode(["Which layer is best?"], stored=True).dtype)  # as an index stores it
"""

_ADAPTER = """from daskmetrics.models import Encoder

encoder = Encoder.load(  # adds the adapter to its base model; encoder.save(FOLDER) writes the merged model
    path={path!r},
    base={base!r},
    revision=None,
    layer={layer},{readout}
    protocol={protocol!r},
)
embed = encoder.encode

print(embed(["Which layer is best?"]).shape)
"""


def snippet(arm: Arm, location: Mapping[str, Any], protocol: Mapping[str, Any], run: Path = RUN) -> str:
    """Python source of a function ``embed(texts)`` that returns the vectors of an arm, (n, D).

    ``location`` has the ``path`` of the weights, their ``revision`` or None, the model's ``depth``, and the folder of
    the ``tokenizer`` if it is another; ``protocol`` is what was done for the model: the keys of the section, perhaps
    with ``prompts`` and ``shipped``. If there are prompts, the function takes one as its second argument. A readout
    that is fitted on the prompts of the run in the folder ``run``, or that reads layers together, is loaded from there.
    """
    readout = Readout.parse(arm.readout)
    if readout.together or readout.is_fitted:
        why = f"layers {', '.join(map(str, readout.together))} are read together" if readout.together else ""
        why = " and ".join(filter(None, (why, "its readout is fitted on the run's prompts" * readout.is_fitted)))
        return _BY_RUN.format(why=why[0].upper() + why[1:], folder=str(run))
    if base := location.get("base"):
        base = {name: base[name] for name in ("path", "revision")}
        given = f"\n    readout={arm.readout!r}," if arm.readout else ""
        return _ADAPTER.format(
            path=location["path"], base=base, layer=arm.layer, readout=given, protocol=dict(protocol)
        )
    revision = f", revision={location['revision']!r}" if location["revision"] else ""
    tokenizer = repr(location["tokenizer"]) if "tokenizer" in location else f"path{revision}"
    norm, states = _states(arm, location, protocol)
    follows = readout.pooling in ("", "as_shipped")
    shipped, parameters, texts = _shipped(location, revision, protocol) if follows else "", "texts", "texts"
    if prompts := protocol.get("prompts"):
        parameters = f"texts, prompt={prompts.get(protocol['default_prompt'], '')!r}"
        shipped += f"prompts = {prompts!r}  # to choose from\n"
        texts = "[prompt + text for text in texts]"
    if protocol.get("shipped", {}).get("lower_case"):
        texts = f"[text.lower() for text in {texts}]"
    return f"""import torch
from transformers import AutoModel, AutoTokenizer

path = {location["path"]!r}
tokenizer = AutoTokenizer.from_pretrained({tokenizer}, padding_side="right")
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model = AutoModel.from_pretrained(path{revision}, dtype=torch.{protocol["dtype"]}).eval()
model = model.get_encoder() if model.config.is_encoder_decoder else model
positions = getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)
max_length = min({protocol["max_length"]}, positions{"" if "shipped" in protocol else ", tokenizer.model_max_length"})
{shipped}{norm}

@torch.inference_mode()
def embed({parameters}):
    batch = tokenizer({texts}, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    {states}
    {_read(readout, _pooling(protocol) if follows else _POOLING[readout.pooling])}


print(embed(["Which layer is best?"]).shape)
"""


def _shipped(location: Mapping[str, Any], revision: str, protocol: Mapping[str, Any]) -> str:
    """Source that loads the modules of a sentence-transformers folder, if they are used."""
    if "shipped" not in protocol:
        return ""
    folder = Path(location["path"])
    root = root_of(folder) or folder
    return (
        "from sentence_transformers import SentenceTransformer\n\n"
        f'modules = list(SentenceTransformer({str(root)!r}{revision}, device="cpu").eval())[1:]  # after the network\n'
    )


def _read(readout: Readout, pooled: str) -> str:
    """Source that returns what an index stores of pooled vectors, as float32."""
    if not (readout.kept or readout.storage != "float32"):
        return pooled
    before, _, vectors = pooled.rpartition("return ")
    kept = f"[:, :{readout.kept}]" if readout.kept else ""
    return f"{before}vectors = ({vectors}){kept}\n    return {_STORED[readout.storage]}"


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
    forward = _FORWARD.format(layer=arm.layer)
    if protocol["state_norm"] == "raw" and last:
        return _FIND_NORM + "\n", _LAST_RAW.format(layer=arm.layer)
    if protocol["state_norm"] == "final_ln" and not last:  # the last layer is after the norm
        return _FIND_NORM + "\n", f"{forward}\n    states = final_norm(states)  # as if the model ended at this layer"
    return "", forward
