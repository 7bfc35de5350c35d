"""A training loop of a user's own, as a process: ``python loop.py FOLDER STEPS EVERY SECONDS
[WIDTH]``; it goes on.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

from daskmetrics.checkpoints.arrivals import FINISHED
from daskmetrics.checkpoints.folders import fault
from daskmetrics.core import corpus as corpus

TEXTS = corpus.prompts("stdlib", 200, 0)


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of 400 tokens, trained on the texts."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer, own.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    own.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<pad>")


def network(width: int = 16) -> GPTNeoXForCausalLM:
    """A network of two layers, or of three if it is wider."""
    torch.manual_seed(0)
    shape = {
        "hidden_size": width,
        "num_hidden_layers": 2 + (width > 16),
        "intermediate_size": 2 * width,
    }
    shape |= {"num_attention_heads": 2}
    return GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=400, max_position_embeddings=64, **shape))


def save(model: GPTNeoXForCausalLM, folder: Path) -> None:
    """Save a checkpoint with its weights last, so that one whose weights are whole is complete."""
    tokenizer().save_pretrained(folder)
    model.save_pretrained(folder)


def train(folder: Path, steps: int, every: int, pause: float, width: int = 16) -> None:
    own, model, start = tokenizer(), network(width), 0
    if done := [int(path.name[4:]) for path in folder.glob("step*") if not fault(path)]:
        start = max(done) + 1
        model = GPTNeoXForCausalLM.from_pretrained(folder / f"step{max(done)}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(start, steps + 1):
        texts = list(TEXTS[8 * (step % 25) : 8 * (step % 25) + 8])
        read = own(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")[
            "input_ids"
        ]
        model(input_ids=read, labels=read).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(pause)
        if step % every == 0:
            save(model, folder / f"step{step}")
    (folder / FINISHED).touch()


if __name__ == "__main__":
    train(
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]),
        *map(int, sys.argv[5:]),
    )
