"""The check at load catches what would otherwise train quietly on wrong numbers."""

import copy
import string
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers import models as tokenizer_models
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from unmask.errors import UnmaskError
from unmask.models import LLaDAConfig, LLaDAModelLM, LoraSettings, add_lora, check, layers, load
from unmask.models.conformance import check_alignment


@pytest.fixture(params=["llada", "dream"])
def pair(request: pytest.FixtureRequest, model_folder: Callable[[str], Path]) -> tuple[Any, Any]:
    return load(model_folder(request.param), check=False)


def refused(model: Any, tokenizer: Any) -> str:
    with pytest.raises(UnmaskError) as error:
        check(model, tokenizer)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_sound_model_passes_in_every_precision_and_with_an_adapter(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        check(model.to(dtype), tokenizer)
    model = add_lora(model.float(), LoraSettings(rank=2)).train()
    check(model, tokenizer)
    assert model.training


def test_a_freshly_initialised_model_passes(pair: tuple[Any, Any]) -> None:
    _, tokenizer = pair
    torch.manual_seed(0)
    ids: dict[str, Any] = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    mask = tokenizer.mask_token_id or tokenizer.convert_tokens_to_ids("<|mdm_mask|>")
    config = LLaDAConfig(d_model=64, n_heads=4, n_layers=4, vocab_size=len(tokenizer), mask_token_id=mask, **ids)
    for dtype in (torch.float32, torch.bfloat16):
        check(LLaDAModelLM(config).to(dtype=dtype), tokenizer)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("mask_token_id", None, "mask_token_id is None"),
        ("mask_token_id", 100_000, "outside the embedding"),
        ("mask_token_id", -1, "outside the embedding"),
        ("mask_token_id", 5, "mask_token_id"),
        ("mask_token_id", "end", "also the end or pad token"),
        ("eos_token_id", 5, "eos_token_id is 5, but the tokenizer's is"),
        ("pad_token_id", 5, "pad_token_id is 5, but the tokenizer's is"),
        ("pad_token_id", 100_000, "outside the embedding"),
    ],
)
def test_a_wrong_token_id_is_named(pair: tuple[Any, Any], key: str, value: Any, expected: str) -> None:
    model, tokenizer = pair
    model.config = copy.deepcopy(model.config)
    setattr(model.config, key, model.end_token_id if value == "end" else value)
    message = refused(model, tokenizer)
    assert expected in message and key in message


def test_an_ordinary_token_is_no_mask_token(model_folder: Callable[[str], Path]) -> None:
    model, tokenizer = load(model_folder("llada"), check=False)
    assert tokenizer.mask_token_id is None  # as in LLaDA's release
    model.config.mask_token_id = 5
    assert "ordinary token" in refused(model, tokenizer)


def test_a_tokenizer_larger_than_the_embedding_is_refused(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens([f"more{i}" for i in range(20)])
    assert "embedding only" in refused(model, tokenizer)


def test_an_id_that_the_tokenizer_lacks_is_refused(model_folder: Callable[[str], Path]) -> None:
    model, tokenizer = load(model_folder("dream"), check=False)
    model.config.mask_token_id = len(tokenizer) + 1  # a row of the embedding without a token
    assert "no token of the tokenizer" in refused(model, tokenizer)


def test_causal_attention_is_refused(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    real = functional.scaled_dot_product_attention

    def causal(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
        return real(q, k, v, is_causal=attn_mask is None, attn_mask=attn_mask)

    monkeypatch.setattr(layers.F, "scaled_dot_product_attention", causal)
    assert "attention is causal" in refused(*pair)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_that_is_seen_is_refused(pair: tuple[Any, Any], side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = pair
    real = type(model).forward

    def blind(self: Any, input_ids: Any, attention_mask: Any = None, **options: Any) -> Any:
        if attention_mask is not None:
            seen = attention_mask[:, 0] == 0 if side == "left" else attention_mask[:, -1] == 0
            attention_mask = attention_mask.masked_fill(seen[:, None], 1)
        return real(self, input_ids, attention_mask, **options)

    monkeypatch.setattr(type(model), "forward", blind)
    assert f"padding on the {side}" in refused(model, tokenizer)


def test_scored_positions_that_are_off_by_one_are_refused(
    pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = pair
    real = type(model).forward

    def off(self: Any, input_ids: Any, attention_mask: Any = None, *, scored: Any = None, **options: Any) -> Any:
        scored = None if scored is None else (scored - 1).clamp(min=0)
        return real(self, input_ids, attention_mask, scored=scored, **options)

    monkeypatch.setattr(type(model), "forward", off)
    assert "scored positions" in refused(model, tokenizer)


def test_logits_that_are_not_finite_are_refused(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    block = model.blocks()[0]
    up = block.up_proj if model.family == "llada" else block.mlp.up_proj
    torch.nn.init.constant_(up.weight, float("nan"))
    assert "not finite" in refused(model, tokenizer)


class NextTokenLLaDA(LLaDAModelLM):
    """LLaDA's network read as Dream's is: the output at i - 1 is about token i."""

    is_shifted = True


def alphabet_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate(["<end>", "<mask>", *string.ascii_uppercase])}
    tokenizer = Tokenizer(tokenizer_models.WordLevel(vocabulary, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", mask_token="<mask>"
    )


@cache
def trained_on_the_alphabet(family: type[LLaDAModelLM]) -> LLaDAModelLM:
    """A model that knows A..Z: masked-diffusion training on that one text."""
    torch.manual_seed(0)
    model = family(
        LLaDAConfig(
            d_model=48,
            n_heads=2,
            n_layers=2,
            mlp_hidden_size=64,
            vocab_size=28,
            mask_token_id=1,
            eos_token_id=0,
            pad_token_id=0,
            rope_theta=1e4,
            init_std=0.1,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    text = torch.arange(2, 28).expand(16, -1)
    for _ in range(150):
        masked = torch.rand(text.shape) < 0.4
        logits = model(text.masked_fill(masked, 1)).logits
        loss = functional.cross_entropy(logits[masked], text[masked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    return model.eval()


@pytest.mark.parametrize(
    ("trained_as", "read_as", "expected"),
    [
        (LLaDAModelLM, LLaDAModelLM, None),
        (NextTokenLLaDA, NextTokenLLaDA, None),
        (LLaDAModelLM, NextTokenLLaDA, "the token before"),
        (NextTokenLLaDA, LLaDAModelLM, "the token after"),
    ],
)
def test_a_checkpoint_with_the_other_alignment_is_refused(
    trained_as: type, read_as: type, expected: str | None
) -> None:
    model = copy.deepcopy(trained_on_the_alphabet(trained_as))
    model.__class__ = read_as
    if expected is None:
        check(model, alphabet_tokenizer())
    else:
        assert expected in refused(model, alphabet_tokenizer())


def test_alignment_is_not_judged_where_the_tokenizer_cannot_write_the_text() -> None:
    tokenizer = alphabet_tokenizer()
    model = copy.deepcopy(trained_on_the_alphabet(LLaDAModelLM))
    model.__class__ = NextTokenLLaDA
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")  # every letter unknown
    check_alignment(model, tokenizer)
