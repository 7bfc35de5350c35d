"""Tiny sentence-transformers folders of random weights, in the shape of well-known embedders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

from daskmetrics.core.corpus import held_out
from daskmetrics.training.data import END, END_ID, fit_tokenizer

WIDTH, DEPTH, LENGTH = 32, 3, 128
INSTRUCTION = (
    "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
)
SHAPE: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 160,
    "initializer_range": 0.3,
}
KINDS: dict[str, dict[str, Any]] = {
    "e5": {"pooling_mode": "mean", "prompts": {"query": "query: ", "document": "passage: "}},
    "bge": {
        "pooling_mode": "cls",
        "prompts": {"query": "Represent this sentence for searching relevant passages: "},
    },
    "qwen3": {"pooling_mode": "lasttoken", "prompts": {"query": INSTRUCTION, "document": ""}},
}
"""What follows the network of each; all of them normalise."""


def build(kind: str, folder: Path) -> Path:
    """A folder as sentence-transformers saves it."""
    settings = KINDS[kind]
    pooling = Pooling(WIDTH, settings["pooling_mode"])
    return save(
        folder,
        network_of(kind, folder / "network"),
        [pooling, Normalize()],
        prompts=settings["prompts"],
    )


def network_of(kind: str, folder: Path) -> Path:
    """The folder of a network and its tokenizer, as transformers saves them."""
    torch.manual_seed(0)
    tokenizer = causal_tokenizer() if kind == "qwen3" else bert_tokenizer()
    sizes = {**SHAPE, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    if kind == "qwen3":
        network: Any = Qwen3Model(Qwen3Config(num_key_value_heads=2, head_dim=8, **sizes))
        # a final norm must not be the identity
        torch.nn.init.normal_(network.norm.weight, 1.0, 0.2)
    else:
        network = BertModel(BertConfig(**sizes))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save(folder: Path, network: Path, rest: list[Any], **settings: Any) -> Path:
    """A folder of a network and the modules that follow it."""
    SentenceTransformer(
        modules=[Transformer(str(network)), *rest], device="cpu", **settings
    ).save_pretrained(str(folder), create_model_card=False)
    return folder


def dense(activation: Any, residual: bool = False, width: int = WIDTH) -> Any:
    """A dense module of random weights that halves the width."""
    torch.manual_seed(1)
    return Dense(width, WIDTH // 2, activation_function=activation, use_residual=residual)


def texts() -> list[str]:
    """What the tokenizers are fitted to."""
    return [document.text[:2000] for document in held_out()]


def bert_tokenizer() -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=False)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    inner.train_from_iterator(
        texts(),
        trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False),
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=LENGTH, **names)


def causal_tokenizer() -> PreTrainedTokenizerFast:
    """Ends every text with the token that is read, and pads on the left."""
    inner = fit_tokenizer(texts(), vocabulary=600)
    inner.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, END_ID)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=LENGTH,
        padding_side="left",
        pad_token=END,
        eos_token=END,
    )
