"""Does a loaded model keep the promises of `denoiser.py`? A few tokens through it, at load.

Finds the mistakes that would otherwise train quietly for days: a wrong mask id, causal attention, padding
that is seen, a checkpoint aligned to the next token under an architecture that is not. Says nothing about how
good the model is.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from unmask.errors import UnmaskError
from unmask.models.denoiser import Denoiser
from unmask.models.tokenizing import END_OF_TURN

LENGTH = 12
"""Tokens of the probe."""

PADS = 3
"""Padding put before or after the probe."""

ALPHABET = " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""A text whose masked letters every language model knows, each another token than its neighbours."""

CLEARLY_BETTER = 2.0
"""Nats a token by which a neighbouring position has to win before the alignment is called wrong."""


@torch.no_grad()
def check(model: Denoiser | PeftModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Run all checks.

    Raises:
        UnmaskError: one line that says what is wrong.
    """
    was_training = model.training
    model.eval()
    try:
        check_token_ids(model, tokenizer)
        check_logits(model, _probe(model, tokenizer))
        check_alignment(model, tokenizer)
    finally:
        model.train(was_training)


def check_token_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Mask, end and pad exist, lie within the embedding and are what the tokenizer calls so."""
    embedded = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > embedded:
        raise UnmaskError(f"the tokenizer has {len(tokenizer)} tokens, the model's embedding only {embedded} rows")
    mask, end, pad = model.mask_token_id, model.end_token_id, model.pad_token_id
    for key, value in (("mask_token_id", mask), ("eos_token_id", end), ("pad_token_id", pad)):
        if not 0 <= value < embedded:
            raise UnmaskError(f"config.json: {key} {value} lies outside the embedding, which has {embedded} rows")
        if tokenizer.convert_ids_to_tokens(value) is None:
            raise UnmaskError(f"config.json: {key} {value} is no token of the tokenizer, which has {len(tokenizer)}")
    if mask in (end, pad):
        raise UnmaskError(f"config.json: mask_token_id {mask} is also the end or pad token; it must be one of its own")
    if tokenizer.mask_token_id is not None:
        _agree("mask_token_id", mask, tokenizer.mask_token_id, tokenizer)
    elif mask not in tokenizer.added_tokens_decoder:
        token = tokenizer.convert_ids_to_tokens(mask)
        raise UnmaskError(f"config.json: mask_token_id {mask} is the ordinary token {token!r}, not a mask token")
    # A chat tokenizer may end at the turn where the model's config ends at the text.
    if tokenizer.eos_token_id is not None and tokenizer.eos_token not in END_OF_TURN:
        _agree("eos_token_id", end, tokenizer.eos_token_id, tokenizer)
    if tokenizer.pad_token_id is not None:
        _agree("pad_token_id", pad, tokenizer.pad_token_id, tokenizer)


def _agree(key: str, in_config: int, in_tokenizer: int, tokenizer: PreTrainedTokenizerBase) -> None:
    if in_config != in_tokenizer:
        token = tokenizer.convert_ids_to_tokens(in_tokenizer)
        raise UnmaskError(f"config.json: {key} is {in_config}, but the tokenizer's is {in_tokenizer} ({token!r})")


def check_logits(model: Any, probe: Tensor) -> None:
    """Finite logits, attention in both directions, invisible padding, scored positions as all positions.

    Args:
        model: the denoiser, perhaps with an adapter.
        probe: (1, T) token ids, some of them masked.
    """
    plain = model(probe).logits[0].float()  # (T, V)
    if not torch.isfinite(plain).all():
        raise UnmaskError("the model gives logits that are not finite; a corrupt checkpoint, or too narrow a dtype")
    # Everything is measured against the spread of the logits; half precision rounds by a hundredth.
    scale = plain.std()
    is_half = model.get_input_embeddings().weight.element_size() == 2
    allowed = scale * (0.15 if is_half else 1e-3)

    edited = probe.clone()
    edited[0, -3:] = probe[0, :3]
    early = slice(0, LENGTH // 2)
    both = model(torch.cat((probe, edited))).logits.float()  # one batch, so that rounding is the same
    if (both[0, early] - both[1, early]).abs().mean() <= scale * (1e-3 if is_half else 1e-5):
        raise UnmaskError("attention is causal: later tokens do not change earlier predictions; not a diffusion model")

    scored = torch.tensor([[LENGTH - 1, 0, LENGTH // 2]], device=probe.device)
    if (model(probe, scored=scored).logits[0].float() - plain[scored[0]]).abs().mean() > allowed:
        raise UnmaskError("logits of scored positions differ from those of a full forward at the same positions")

    pads = probe.new_full((1, PADS), model.pad_token_id)
    real = torch.ones_like(probe)
    padded = torch.cat((torch.cat((pads, probe), 1), torch.cat((probe, pads), 1)))
    mask = torch.cat((torch.cat((real.new_zeros(1, PADS), real), 1), torch.cat((real, real.new_zeros(1, PADS)), 1)))
    left, right = model(padded, mask).logits.float()
    for side, logits in (("left", left[PADS:]), ("right", right[:-PADS])):
        if (logits - plain).abs().mean() > allowed:
            raise UnmaskError(f"padding on the {side} changes the predictions of real positions")


def check_alignment(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """`logits[:, i]` predicts token i of a text that any trained model knows, and not its neighbour.

    Passes when the tokenizer cannot write the text or the model does not know it: nothing can be told then.
    """
    ids = tokenizer.encode(ALPHABET, add_special_tokens=False)
    unusable = {*tokenizer.all_special_ids, tokenizer.unk_token_id, model.mask_token_id}
    if len(ids) < LENGTH or len(set(ids)) < LENGTH or unusable & set(ids):
        return
    text = torch.tensor(ids, device=model.get_input_embeddings().weight.device)  # (T,)
    middle = torch.arange(4, len(ids) - 2, 6, device=text.device)
    # Both neighbours are masked too: no model is trained to say anything about a token it can see.
    masked = torch.cat((middle - 1, middle, middle + 1))
    noisy = text.index_fill(0, masked, model.mask_token_id)
    logprob = model(noisy[None], scored=middle[None]).logits[0]
    logprob = logprob.float().log_softmax(-1)  # (N, V)
    fit = {k: logprob.gather(1, text[middle + k][:, None]).mean().item() for k in (-1, 0, 1)}
    best = max(fit, key=lambda k: fit[k])
    if fit[best] - fit[0] > CLEARLY_BETTER and fit[best] > math.log(0.2):
        where = "before" if best < 0 else "after"
        raise UnmaskError(
            f"predictions are about the token {where} their position: "
            f"the checkpoint is not aligned as {model.family} models are"
        )


def _probe(model: Any, tokenizer: PreTrainedTokenizerBase) -> Tensor:
    """(1, LENGTH) ids: ordinary tokens from all over the vocabulary, every third position masked."""
    special = {model.mask_token_id, model.end_token_id, model.pad_token_id}
    ordinary = [i for i in range(min(model.vocab_size, len(tokenizer))) if i not in special]
    if not ordinary:
        raise UnmaskError("the tokenizer has no token besides mask, end and pad")
    ids = [ordinary[(i * len(ordinary) // LENGTH) % len(ordinary)] for i in range(LENGTH)]
    for i in range(2, LENGTH, 3):
        ids[i] = model.mask_token_id
    return torch.tensor([ids], device=model.get_input_embeddings().weight.device)
