"""What the rest of the code may assume of a model: tokens in, aligned logits out, only where they are scored.

A family (`llada.py`, `dream.py`) says what its weights are called and defines one block; the way through the
blocks, the padding mask, the alignment and the scored positions are here, once. One state costs a full
bidirectional forward; `cache` is for callers that accept an approximation (see `cache.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

from unmask.errors import UnmaskError
from unmask.models.cache import CacheRows
from unmask.models.layers import Block, Context, rotary_table, rows


@dataclass
class DenoiserOutput(ModelOutput):
    """`S` is the number of scored positions, or `T` when no positions were named."""

    logits: Tensor | None = None
    """(B, S, V): `logits[:, j]` is about the token at the j-th scored position."""
    hidden: Tensor | None = None
    """(B, S, d) final-normed hidden states, which `Denoiser.head` turns into logits; instead of `logits`."""


class Denoiser(PreTrainedModel):
    """A masked diffusion language model: sees tokens and mask tokens, predicts every position at once."""

    config_class: type[PretrainedConfig]
    family: ClassVar[str]
    """Short name of the architecture: `llada` or `dream`."""
    is_shifted: ClassVar[bool]
    """Whether the network predicts token i at position i - 1, as the causal models it was trained from do."""

    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    # What a family provides

    def embed(self, input_ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, d)."""
        raise NotImplementedError

    def blocks(self) -> Sequence[Block]:
        """The transformer blocks in order."""
        raise NotImplementedError

    def final_norm(self, x: Tensor) -> Tensor:
        """Last hidden states -> what the head reads, same shape."""
        raise NotImplementedError

    def head(self, hidden: Tensor) -> Tensor:
        """The LM head: `hidden` (.., d) as `forward(return_hidden=True)` gives it -> logits (.., V)."""
        raise NotImplementedError

    def companion_files(self) -> dict[str, dict[str, Any]]:
        """JSON files that the authors' code wants beside a checkpoint, by name."""
        return {}

    @property
    def rotary(self) -> tuple[int, float]:
        """Head width D and rotary base theta."""
        raise NotImplementedError

    # What the rest of the code uses

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        *,
        scored: Tensor | None = None,
        return_hidden: bool = False,
        cache: CacheRows | None = None,
    ) -> DenoiserOutput:
        """Predict tokens, for every family aligned with the tokens they are about.

        Args:
            input_ids: (B, T) token ids; unknown tokens hold `mask_token_id`.
            attention_mask: (B, T), 1 (or true) = real, 0 = padding before or after the real tokens; `None` =
                nothing is padded. Padding is invisible: real positions get the logits they get without it.
                Each row holds at least one real token; logits at padding are finite and mean nothing.
            scored: (B, S) int64 positions to predict, `None` = all T. A row with fewer repeats one of its
                positions. The last block computes keys and values of every position, but queries, MLP and
                head only here.
            return_hidden: leave the head out and return `hidden`, so that a caller can apply `head` in
                chunks.
            cache: keep keys and values, or run only the positions that it feeds and attend to kept ones
                elsewhere; without gradients. `attention_mask` then says which keys are visible. With fed
                positions `scored` is needed, and what predicts a scored position (itself, or its predecessor
                in a shifted family) must be fed.

        Returns:
            logits (B, S, V) or hidden (B, S, d), the same numbers (to rounding) with and without `scored`.
        """
        is_real = None if attention_mask is None else attention_mask.bool()
        source = self._source(input_ids, is_real, scored)
        fed = None if cache is None else cache.fed
        if fed is not None:
            assert source is not None, "a pass over fed positions has to name the scored ones"
            source = torch.searchsorted(fed.contiguous(), source.contiguous())  # their places among the fed
        x = self.embed(input_ids if fed is None else input_ids.gather(1, fed))
        cos, sin = rotary_table(input_ids.shape[1], *self.rotary, like=x)
        context = Context(cos, sin, None if is_real is None else is_real[:, None, None, :], cache)
        *body, last = self.blocks()
        for block in body:
            x = block(x, context)
            context = context._replace(block=context.block + 1)
        if scored is None:
            x = rows(self.final_norm(last(x, context)), source)
        else:
            x = self.final_norm(last(x, context, source))
        return DenoiserOutput(hidden=x) if return_hidden else DenoiserOutput(logits=self.head(x))

    def _source(self, input_ids: Tensor, is_real: Tensor | None, scored: Tensor | None) -> Tensor | None:
        """Positions (B, S) whose output predicts the scored ones; `None` = every position its own.

        A shifted family predicts token i at i - 1; the first real token has no predecessor and uses its own
        output.
        """
        if not self.is_shifted:
            return scored
        if scored is None:
            scored = torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
        if is_real is None:
            return (scored - 1).clamp(min=0)
        return torch.maximum(scored - 1, is_real.int().argmax(1, keepdim=True))

    @property
    def mask_token_id(self) -> int:
        """The id that stands for a token not yet revealed."""
        return self._token_id("mask_token_id")

    @property
    def end_token_id(self) -> int:
        """The id that ends a response."""
        return self._token_id("eos_token_id")

    @property
    def pad_token_id(self) -> int:
        """The id written where the attention mask is 0."""
        return self._token_id("pad_token_id")

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary; the head may be wider (rows that no token uses)."""
        return int(self.config.vocab_size)

    def _token_id(self, key: str) -> int:
        value = getattr(self.config, key, None)
        if not isinstance(value, int):
            raise UnmaskError(f"config of {self.name_or_path or self.family}: {key} is {value!r}; a token id is needed")
        return value

    # Memory against time

    def gradient_checkpointing_enable(
        self, gradient_checkpointing_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> None:
        """Recompute blocks in the backward pass instead of keeping activations, also in evaluation mode."""
        asked = {**(gradient_checkpointing_kwargs or {}), **options}
        for key, value in asked.items():
            if (key, value) not in [("use_reentrant", False), ("every_n_layers", 1), ("offload", False)]:
                raise UnmaskError(f"gradient checkpointing: {key}={value!r} is not supported; leave it out")
        self._set_block_checkpointing(True)

    def gradient_checkpointing_disable(self) -> None:
        """Keep activations again."""
        self._set_block_checkpointing(False)

    @property
    def is_gradient_checkpointing(self) -> bool:
        """Whether blocks are recomputed in the backward pass."""
        return any(block.gradient_checkpointing for block in self.blocks())

    def _set_block_checkpointing(self, enabled: bool) -> None:
        for block in self.blocks():
            block.gradient_checkpointing = enabled


def require(config: Any, supported: Mapping[str, Sequence[Any]]) -> None:
    """Refuse a configuration that this code would read but not obey.

    Args:
        config: the model's configuration; a key it lacks is fine.
        supported: config key -> the values that are implemented.
    """
    for key, values in supported.items():
        value = getattr(config, key, None)
        if value is not None and value not in values:
            listed = " or ".join(repr(v) for v in values)
            raise UnmaskError(f"model config: {key}={value!r} is not supported; only {listed}")


def require_sizes(config: Any) -> None:
    """Refuse sizes that are not positive numbers and head counts that do not divide."""
    for key in (
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "vocab_size",
    ):
        value = getattr(config, key)
        if not isinstance(value, int) or value < 1:
            raise UnmaskError(
                f"model config: {config.attribute_map.get(key, key)}={value!r} must be a whole number >= 1"
            )
    for key in ("rms_norm_eps", "rope_theta"):
        value = getattr(config, key)
        if not isinstance(value, int | float) or value <= 0:
            raise UnmaskError(f"model config: {key}={value!r} must be a number > 0")
    width, heads, kv_heads = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
    if width % heads or (width // heads) % 2 or heads % kv_heads:
        raise UnmaskError(
            f"model config: width {width}, {heads} heads and {kv_heads} key/value heads do not fit; "
            "width / heads must be an even whole number and heads a multiple of key/value heads"
        )


def initialize(module: nn.Module, std: float) -> None:
    """Fresh weights: normal(0, std) matrices, zero biases, unit norms. Loaded weights are left alone."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, mean=0.0, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.RMSNorm):
        nn.init.ones_(module.weight)
