"""A training loop of a user's own, as a process: ``python loop.py FOLDER STEPS EVERY SECONDS
[WIDTH]``; it goes on.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

from daskmetrics.checkpoints.checks import require_complete
from daskmetrics.checkpoints.folders import FINISHED
from daskmetrics.checkpoints.layout import Incomplete
from daskmetrics.core import corpus as corpus
from daskmetrics.training.data import END, fit_tokenizer

TEXTS = corpus.prompts("stdlib", 200, 0)


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of 400 tokens, trained on the texts."""
    trained = fit_tokenizer(TEXTS, vocabulary=400)
    return PreTrainedTokenizerFast(tokenizer_object=trained, pad_token=END)


def network(width: int = 16) -> GPTNeoXForCausalLM:
    """A network of two layers, or of three if it is wider."""
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=400,
        max_position_embeddings=64,
        hidden_size=width,
        num_hidden_layers=2 + (width > 16),
        intermediate_size=2 * width,
        num_attention_heads=2,
    )
    return GPTNeoXForCausalLM(config)


def save(model: GPTNeoXForCausalLM, folder: Path) -> None:
    """Save a checkpoint with its weights last, so that one whose weights are whole is complete."""
    tokenizer().save_pretrained(folder)
    model.save_pretrained(folder)


def train(folder: Path, steps: int, every: int, pause: float, width: int = 16) -> None:
    start, tokens, model = 0, tokenizer(), network(width)
    done = []
    for path in folder.glob("step*"):
        with suppress(Incomplete):
            require_complete(path)
            done.append(int(path.name[4:]))
    if done:
        start = max(done) + 1
        model = GPTNeoXForCausalLM.from_pretrained(folder / f"step{max(done)}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(start, steps + 1):
        first = 8 * (step % 25)
        texts = list(TEXTS[first : first + 8])
        batch = tokens(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
        model(input_ids=batch["input_ids"], labels=batch["input_ids"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(pause)
        if step % every == 0:
            save(model, folder / f"step{step}")
    (folder / FINISHED).touch()


if __name__ == "__main__":
    folder, steps, every, pause, *width = sys.argv[1:]
    train(Path(folder), int(steps), int(every), float(pause), *map(int, width))
