"""From token ids to the states of each layer: one forward pass that hands them out, and stops after
the deepest requested one.

The parts of a network are found by what they do in a pass over a few tokens, and not by their
names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from inspect import signature
from itertools import chain, cycle, islice, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from daskmetrics.core.errors import DataError, is_out_of_memory
from daskmetrics.domain.results import NetworkSize

TOKENS = 8  # of the probe
# of what torch says in a plain RuntimeError: of texts of a length that a network does not read, and
# of a part that computes in float32 only
MISFITS = ("shape '[", "The size of tensor", "shapes cannot be multiplied")
MIXED_TYPES = ("dtype", "scalar type", "not implemented for")


OnStates = Callable[[int, Tensor], None]
"""Receives a layer and its raw states (B, T, D), which are not kept."""


class _StopForward(Exception):
    """Ends the pass after the deepest requested layer."""


@dataclass(frozen=True, eq=False)
class NetworkParts:
    """The parts of one network.

    If the blocks are not known, states come from ``output_hidden_states``.
    """

    reader: Any  # the network that reads texts: a model, or the encoder of an encoder-decoder model
    depth: int
    # in the order of their calls; ALBERT calls one block again and again
    blocks: tuple[nn.Module, ...]
    final_norm: nn.Module | None
    problem: str = ""  # why the final norm is not known; empty if it is
    first_position: int = 0  # RoBERTa and its kin number tokens from 2
    positions: int | None = None  # tokens of the longest text
    # of the present weights: positions that were zero at first may not be so any more
    numberings: dict[tuple[str, int], bool | None] = field(default_factory=dict)

    def size(self, layers: Iterable[int], whole: int) -> NetworkSize | None:
        """The size of the network; None if the blocks are not known."""
        if not self.blocks:
            return None
        config = self.reader.config
        weights = dict(self.reader.named_parameters())
        by_block = [set(block.parameters()) for block in self.blocks]
        inside = set().union(*by_block)
        # no layer reads a pooler
        outside = {w for name, w in weights.items() if w not in inside and "pooler" not in name}
        heads = getattr(config, "num_attention_heads", None) or 0
        width = getattr(config, "head_dim", None) or config.hidden_size // max(1, heads)
        needed = []
        computed = []
        for layer in layers:
            needed.append(sum(w.numel() for w in outside.union(*by_block[:layer])))
            computed.append(sum(w.numel() for w in chain.from_iterable(by_block[:layer])))
        return NetworkSize(tuple(needed), tuple(computed), heads * width, whole)

    def inputs(self, mask: Tensor, numbered: bool, **tokens: Tensor) -> dict[str, Tensor]:
        """Arguments of the network's forward, (B, T) each.

        Of a mask and what a tokenizer gives, with or without positions.
        """
        inputs = {"attention_mask": mask.long()}
        if numbered:
            numbers = mask.long().cumsum(1) - 1
            inputs["position_ids"] = self.first_position + numbers.clamp(min=0)
        return inputs | tokens

    def takes(self, argument: str) -> bool:
        """Whether the network's forward has an argument of this name."""
        return argument in signature(self.reader.forward).parameters

    def __call__(self, inputs: Mapping[str, Tensor], **options: bool) -> Any:
        """What the network returns.

        It is a `DataError` if a part of it cannot compute in its dtype.
        """
        if self.takes("use_cache"):
            options["use_cache"] = False
        try:
            return self.reader(**inputs, **options, return_dict=True)
        except RuntimeError as error:
            kind = self.reader.config.model_type
            if not is_out_of_memory(error) and any(words in str(error) for words in MISFITS):
                length = inputs["attention_mask"].shape[1]
                raise DataError(
                    f"A {kind} cannot read texts of {length} tokens: {error}. It may read a few"
                    " lengths only; choose another model."
                ) from error
            dtype = next(self.reader.parameters()).dtype
            if dtype.itemsize >= 4 or not any(words in str(error) for words in MIXED_TYPES):
                raise
            raise DataError(
                f"A {kind} cannot be read in {str(dtype).removeprefix('torch.')}: a part of it"
                f" computes in another type ({error}). Use 'dtype: float32' in the protocol."
            ) from error

    @torch.inference_mode()
    def run(
        self, inputs: Mapping[str, Tensor], layers: Collection[int], on_states: OnStates
    ) -> None:
        """Call ``on_states`` with the raw states of each layer.

        They are as its block returns them, before any final norm. Layer 0 is the input of the first
        block; without blocks it is the last hidden state. Where the blocks are known, no states are
        kept and no block after the deepest requested layer runs; otherwise all states are kept
        until the pass ends.
        """
        if not self.blocks:
            self._by_outputs(inputs, layers, on_states)
            return
        deepest = max(layers)
        layer = 0
        length = inputs["attention_mask"].shape[1]

        def show(states: Tensor) -> None:
            if layer in layers:
                on_states(layer, states[:, :length])  # some networks pad within
            if layer == deepest:
                raise _StopForward

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if layer == 0:
                show(states_given(args, kwargs))

        def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
            nonlocal layer
            layer += 1
            show(states_returned(output))

        with ExitStack() as hooks, suppress(_StopForward):
            first = self.blocks[0]
            hooks.callback(first.register_forward_pre_hook(before, with_kwargs=True).remove)
            for block in dict.fromkeys(self.blocks[:deepest]):
                hooks.callback(block.register_forward_hook(after).remove)
            self(inputs)

    def _by_outputs(
        self, inputs: Mapping[str, Tensor], layers: Collection[int], on_states: OnStates
    ) -> None:
        if not self.depth:
            on_states(0, self(inputs).last_hidden_state)
            return
        before_norm: list[Tensor] = []
        with ExitStack() as hooks:
            if self.final_norm is not None:
                handle = self.final_norm.register_forward_pre_hook(
                    lambda _, args, kwargs: before_norm.append(states_given(args, kwargs)),
                    with_kwargs=True,
                )
                hooks.callback(handle.remove)
            hidden = self(inputs, output_hidden_states=True).hidden_states
        for layer in sorted(layers):
            states = hidden[layer]
            if before_norm and layer == self.depth:
                # transformers has applied the final norm to the last layer only
                states = before_norm[0]
            on_states(layer, states[:, : inputs["attention_mask"].shape[1]])

    def numbering(self, side: str, pad: int) -> bool | None:
        """Whether positions are passed with texts of this padding.

        None if texts of different lengths must not share a batch. A short text is read alone, and
        beside a longer one: with positions if the padding is on the left, then without. The first
        way that gives the same states, up to rounding in their dtype, is used for all texts. A
        network whose states depend on the padding either way is read in batches of texts of equal
        length.
        """
        if (side, pad) in self.numberings:
            return self.numberings[side, pad]
        ids = probe(self.reader).tolist()
        texts = [ids[:3], ids[3:]]
        device = next(self.reader.parameters()).device

        def states(batch: list[list[int]], numbered: bool) -> dict[int, Tensor]:
            """States of the tokens of the first text, by layer."""
            padded, mask = (tensor.to(device) for tensor in pad_batch(batch, pad, side))
            by_layer: dict[int, Tensor] = {}

            def keep(layer: int, raw: Tensor) -> None:
                by_layer[layer] = raw[0, mask[0]]

            self.run(self.inputs(mask, numbered, input_ids=padded), range(self.depth + 1), keep)
            return by_layer

        alone = states(texts[:1], numbered=False)
        result = None
        for numbered in (True, False):
            if numbered and (side != "left" or not self.takes("position_ids")):
                continue
            beside = states(texts, numbered)
            if all(_are_close(alone[layer], beside[layer]) for layer in alone):
                result = numbered
                break
        self.numberings[side, pad] = result
        return result


def states_given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The first tensor among a module's arguments, if any.

    That of a block is its states.
    """
    arguments = (*args, *kwargs.values())
    return next((argument for argument in arguments if isinstance(argument, Tensor)), None)


def states_returned(output: Any) -> Any:
    """The states that a block returns."""
    if isinstance(output, tuple):
        return output[0]
    return output


@dataclass(frozen=True, eq=False)
class _Call:
    module: nn.Module
    given: Any
    returned: Any


@contextmanager
def _traced(network: nn.Module) -> Iterator[tuple[list[_Call], list[list[_Call]]]]:
    """The calls of all modules within the block.

    First of those outside lists, then of the members of each outermost list.
    """
    outside: list[_Call] = []
    lists: list[list[_Call]] = []

    def record(module: nn.Module, calls: list[_Call]) -> None:
        def after(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            states = states_given(args, kwargs), states_returned(output)
            # copies, since the network may change its tensors
            copies = (s.clone() if isinstance(s, Tensor) else None for s in states)
            calls.append(_Call(module, *copies))

        hooks.callback(module.register_forward_hook(after, with_kwargs=True).remove)

    def watch(module: nn.Module) -> None:
        for child in module.children():
            if isinstance(child, nn.ModuleList):
                lists.append([])
                for member in child:
                    record(member, lists[-1])
            else:
                record(child, outside)
                watch(child)

    with ExitStack() as hooks:
        watch(network)
        yield outside, lists


@torch.inference_mode()
def parts_of(model: Any) -> NetworkParts:
    """Find the parts of a network by one forward pass.

    The blocks are the members of a list of modules that are called as often as there are blocks,
    each with the states that the one before returned. The final norm is the module outside the
    blocks that turns the states of the last block into ``last_hidden_state``, each token by itself;
    there is none if these states are ``last_hidden_state``. A network that does not read token ids,
    or does not give the states of all its layers, is a `DataError`.
    """
    reader = model
    if model.config.is_encoder_decoder:
        reader = model.get_encoder()
    depth = int(reader.config.num_hidden_layers)
    network = NetworkParts(reader, depth, (), None)
    with _traced(reader) as (outside, lists):
        last_states = _read_probe(network).last_hidden_state
    if not depth:  # as a model that was saved at its layer 0
        return NetworkParts(reader, depth, (), None, "", *_positions(reader.config, outside))
    lists = [calls for calls in lists if len(calls) == depth]
    chained = next(filter(_chains, lists), [])
    blocks = tuple(call.module for call in chained)
    if not all(call.returned.shape[:2] == (1, TOKENS) for call in chained):
        blocks = ()
    if not blocks:
        _check_outputs(network, lists)
    if chained:
        lists = [chained]
    ends = [calls[-1].returned for calls in lists]
    norm, problem = _final_norm(outside, ends, last_states)
    first_position, positions = _positions(reader.config, outside)
    return NetworkParts(reader, depth, blocks, norm, problem, first_position, positions)


def _read_probe(parts: NetworkParts, **options: bool) -> Any:
    ids = probe(parts.reader)[None]
    try:
        inputs = parts.inputs(torch.ones_like(ids), numbered=False, input_ids=ids)
        return parts(inputs, **options)
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        kind = parts.reader.config.model_type
        raise DataError(
            f"A {kind} cannot be read as a model of text: from token ids alone, {error!r}."
        ) from error


def probe(network: Any) -> Tensor:
    """Distinct token ids (`TOKENS`,), none of them padding.

    They descend, unlike positions.
    """
    size = int(getattr(network.config, "vocab_size", None) or 128)  # CANINE reads code points
    pad = getattr(network.config, "pad_token_id", None)
    stride = max(1, size // (TOKENS + 2))
    ids = [token for token in range(size - 2, 0, -stride) if token != pad]
    repeated = islice(cycle(ids or [0]), TOKENS)
    device = next(network.parameters()).device
    return torch.tensor(list(repeated), device=device)


def _chains(calls: Sequence[_Call]) -> bool:
    """Whether each call is given what the one before returned."""
    states = list(chain.from_iterable((call.given, call.returned) for call in calls))
    for state in states:
        if not isinstance(state, Tensor) or not state.is_floating_point() or state.dim() < 2:
            return False
    alike = len({state.shape for state in states}) == 1
    return alike and all(_same(a.returned, b.given) for a, b in pairwise(calls))


def _check_outputs(parts: NetworkParts, lists: Sequence[Sequence[_Call]]) -> None:
    """Check that transformers returns the states of the layers.

    The first must be what the first member of a list is given, and each next what a member returns
    or the following one is given; the last one may be after a norm.
    """
    hidden = _read_probe(parts, output_hidden_states=True).hidden_states
    if any(states.dim() != 3 or len(states) != 1 for states in hidden):
        raise DataError(
            f"A {parts.reader.config.model_type} cannot be read: its layers have no single state of"
            f" each token, but states of the shape {tuple(hidden[0].shape)} for {TOKENS} tokens."
            " Choose another model."
        )
    are_layers = (_are_layers(hidden[:-1], calls) for calls in lists)
    if len(hidden) != parts.depth + 1 or not any(are_layers):
        raise DataError(
            f"A {parts.reader.config.model_type} of {parts.depth} blocks cannot be read: the blocks"
            f" do not pass their states on to each other, and the {len(hidden)} hidden states of"
            f" transformers are not the {parts.depth + 1} that they are given and return."
        )


def _are_layers(hidden: Sequence[Tensor], calls: Sequence[_Call]) -> bool:
    """Whether states are those before and after each call."""
    between = [(calls[0].given,), *((a.returned, b.given) for a, b in pairwise(calls))]
    for states, candidates in zip(hidden, between, strict=True):
        rows = states.reshape(-1, states.shape[-1])[:TOKENS]
        # CPMAnt puts a prompt of its own before the text
        ends = (state[:, -TOKENS:] for state in candidates if isinstance(state, Tensor))
        if not any(_are_states(state, rows) for state in (*candidates, *ends)):
            return False
    return True


def _are_states(given: object, states: Tensor) -> bool:
    """Whether a module was given, or returned, these states."""
    width = states.shape[-1]
    if not isinstance(given, Tensor) or given.dim() < 2 or given.shape[-1] != width:
        return False
    return _same(given.reshape(-1, width)[:TOKENS], states)  # Longformer pads within


def _final_norm(
    outside: Sequence[_Call], ends: Sequence[Any], last_states: Tensor
) -> tuple[nn.Module | None, str]:
    """The final norm, or None and why it is not known."""
    width = last_states.shape[-1]
    wanted = last_states.reshape(-1, width)
    raw = [
        end.reshape(-1, width)[:TOKENS]
        for end in ends
        if isinstance(end, Tensor) and end.dim() > 1 and end.shape[-1] == width
    ]
    for call in outside:
        if not _are_states(call.returned, wanted):
            continue
        # a dropout changes nothing; a norm may do so by chance, but it has parameters
        has_parameters = any(True for _ in call.module.parameters())
        if not has_parameters and _are_states(call.given, wanted):
            continue
        if any(_are_states(call.given, end) for end in raw) and _acts_on_tokens(call, width):
            return call.module, ""
    if any(_same(end, wanted) for end in raw):
        return None, ""
    return None, "no single module turns the states of its last block into its last hidden state"


def _acts_on_tokens(call: _Call, width: int) -> bool:
    """Whether a module gives for one token alone what it gave among others."""
    given, returned = (
        states.reshape(-1, width)[None, :1] for states in (call.given, call.returned)
    )
    try:
        return torch.allclose(call.module(given), returned, rtol=1e-2, atol=1e-4, equal_nan=True)
    except (TypeError, ValueError, RuntimeError):  # it needs other arguments
        return False


def _positions(config: Any, outside: Sequence[_Call]) -> tuple[int, int | None]:
    """Number of the first token, and tokens of the longest text."""
    limit = max(0, getattr(config, "max_position_embeddings", None) or 0) or None  # XLNet's is -1
    for call in outside:
        module = call.module
        ids = call.given
        if isinstance(module, nn.Embedding) and isinstance(ids, Tensor) and ids.numel() >= TOKENS:
            numbers = ids.flatten()[:TOKENS].long().tolist()
            start = numbers[0]
            if numbers == list(range(start, start + TOKENS)):  # it embeds positions
                return start, min(module.num_embeddings - start, limit or module.num_embeddings)
    return 0, limit


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    both_nan = a.isnan() & b.isnan()
    return bool(((a == b) | both_nan).all())


def pad_batch(tokens: Sequence[Any], pad: int, side: str) -> tuple[Tensor, Tensor]:
    """Token ids (B, T) and mask (B, T), padded on one side.

    >>> pad_batch([[5, 6], [7]], pad=0, side="left")[0].tolist()
    [[5, 6], [0, 7]]
    """
    rows = [torch.as_tensor(row).long() for row in tokens]
    counted = [torch.ones_like(row, dtype=torch.bool) for row in rows]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad, padding_side=side)
    mask = pad_sequence(counted, batch_first=True, padding_side=side)
    return ids, mask


def _are_close(a: Tensor, b: Tensor) -> bool:
    """Whether states are equal up to rounding in their dtype.

    Half precision may overflow, in both or in none.
    """
    tolerance = 1e-4
    if a.dtype.itemsize < 4:
        tolerance = 8 * torch.finfo(a.dtype).eps
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()):
        return False
    a = a[finite].float()
    b = b[finite].float()
    return bool((a - b).norm() <= tolerance * a.norm())
