"""A small LLaDA from nothing, with a character tokenizer: what the shipped tiny model was made from."""

import torch
from pydantic import BaseModel, ConfigDict, Field
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from unmask.models.llada import LLaDAConfig, LLaDAModelLM
from unmask.randomness import name_seed

END, MASK = "<|endoftext|>", "<|mdm_mask|>"


class ScratchSettings(BaseModel):
    """Shape of a new model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    alphabet: str = Field("0123456789+-*/()= ", min_length=1)
    """Characters the model reads and writes; each is one token."""
    width: int = Field(96, ge=8)
    """Width of the hidden states."""
    layers: int = Field(3, ge=1)
    """Transformer blocks."""
    heads: int = Field(4, ge=1)
    """Attention heads."""
    mlp_width: int = Field(256, ge=8)
    """Width inside the gated MLP."""
    max_length: int = Field(512, ge=8)
    """Longest sequence recorded in the model's config."""


def build(settings: ScratchSettings, seed: int) -> tuple[LLaDAModelLM, PreTrainedTokenizerFast]:
    """A randomly initialised model in float32 and its tokenizer; the same seed gives the same weights."""
    tokenizer = character_tokenizer(settings.alphabet)
    config = LLaDAConfig(
        d_model=settings.width,
        n_layers=settings.layers,
        n_heads=settings.heads,
        n_kv_heads=settings.heads,
        mlp_hidden_size=settings.mlp_width,
        vocab_size=len(tokenizer),
        embedding_size=len(tokenizer),
        max_sequence_length=settings.max_length,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        mask_token_id=tokenizer.mask_token_id,
        rope_theta=10_000.0,
        init_std=0.06,  # a narrow model learns far slower from the 0.02 that suits wide ones
        weight_tying=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(name_seed(seed, "initialisation"))
        return LLaDAModelLM(config), tokenizer


def character_tokenizer(alphabet: str) -> PreTrainedTokenizerFast:
    """Two special tokens, then one token a character. As in LLaDA, the end token is also the padding."""
    vocabulary = {token: index for index, token in enumerate([END, MASK, *dict.fromkeys(alphabet)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=END,
        mask_token=MASK,
        clean_up_tokenization_spaces=False,
    )
