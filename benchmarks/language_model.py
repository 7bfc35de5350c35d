"""A small language model of Python's help texts by plain DDP, as a user writes it: one file that
knows nothing of workers and resumes from its newest checkpoint.

``daskmetrics train benchmarks/language_model.py --ranks 2 -- --steps 1200`` trains it; docs/train.md
shows a run that measures and scores its checkpoints meanwhile.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.parallel import DistributedDataParallel
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

import daskmetrics

VOCABULARY, CONTEXT, WIDTH = 1024, 64, 64


def fit_tokenizer() -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(topics.values(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--batch", type=int, default=8, help="sequences of each rank")
    parser.add_argument("--output_dir", type=Path, default=Path("out"))
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    tokenizer = fit_tokenizer()
    tokens = torch.tensor(tokenizer("\n".join(topics.values()))["input_ids"])

    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=2 * CONTEXT,
    )
    model = GPTNeoXForCausalLM(config)
    saved = [int(path.name.partition("-")[2]) for path in options.output_dir.glob("checkpoint-*")]
    first = max(saved, default=0)
    if saved:
        model = GPTNeoXForCausalLM.from_pretrained(options.output_dir / f"checkpoint-{first}")
    dist.barrier()  # every rank has looked before one writes

    def save(step: int) -> None:
        partial = options.output_dir / f".partial-{step}"
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        partial.rename(options.output_dir / f"checkpoint-{step}")

    if rank == 0 and not saved:
        save(0)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=3e-3)
    for step in range(first + 1, options.steps + 1):
        generator = torch.Generator().manual_seed(size * step + rank)
        starts = torch.randint(len(tokens) - CONTEXT, (options.batch, 1), generator=generator)
        batch = tokens[starts + torch.arange(CONTEXT)]
        loss = ddp(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        samples = step * options.batch * size
        epoch = samples * CONTEXT / len(tokens)
        daskmetrics.progress(step, options.steps, loss=loss.item(), samples=samples, epoch=epoch)
        if rank == 0 and step % options.every == 0:
            save(step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
