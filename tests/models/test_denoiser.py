"""The promises of `Denoiser`: alignment, padding, scored positions, gradients, configurations it refuses."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.models import Denoiser, DreamConfig, DreamModel, LLaDAConfig, LLaDAModelLM

EXACT: dict[str, Any] = {"atol": 1e-10, "rtol": 0}

LLADA: dict[str, Any] = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 2,
    "mlp_hidden_size": 24,
    "vocab_size": 11,
    "init_std": 0.3,
}
DREAM: dict[str, Any] = {
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 24,
    "vocab_size": 11,
    "initializer_range": 0.3,
}


def random_ids(model: Denoiser, batch: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(model.vocab_size, (batch, length), generator=torch.Generator().manual_seed(seed))


def pick(logits: Tensor, positions: Tensor) -> Tensor:
    """(B, T, V) at (B, S) -> (B, S, V)."""
    return torch.stack([row[index] for row, index in zip(logits, positions, strict=True)])


def padded(ids: Tensor, left: int, right: int, fill: int) -> tuple[Tensor, Tensor]:
    """ids (B, T) with padding around, and its attention mask."""
    ids = torch.nn.functional.pad(ids, (left, right), value=fill)
    mask = torch.zeros_like(ids)
    mask[:, left : ids.shape[1] - right] = 1
    return ids, mask


@torch.no_grad()
@pytest.mark.parametrize(("left", "right"), [(4, 0), (0, 3), (2, 5)])
def test_padding_is_invisible(recorded: Denoiser, left: int, right: int) -> None:
    ids = random_ids(recorded, 2, 9)
    plain = recorded(ids).logits
    for fill in (recorded.pad_token_id, 3):
        logits = recorded(*padded(ids, left, right, fill)).logits
        torch.testing.assert_close(logits[:, left : left + 9], plain, **EXACT)
        assert torch.isfinite(logits).all()


@torch.no_grad()
def test_rows_of_different_length_do_not_disturb_each_other(recorded: Denoiser) -> None:
    long, short = random_ids(recorded, 1, 9), random_ids(recorded, 1, 5, seed=1)
    short_ids, short_mask = padded(short, 4, 0, recorded.pad_token_id)
    ids, mask = torch.cat((long, short_ids)), torch.cat((torch.ones_like(long), short_mask)).bool()
    logits = recorded(ids, mask).logits
    torch.testing.assert_close(logits[:1], recorded(long).logits, **EXACT)
    torch.testing.assert_close(logits[1:, 4:], recorded(short).logits, **EXACT)


@torch.no_grad()
def test_scored_positions_equal_the_full_forward(recorded: Denoiser) -> None:
    ids, mask = padded(random_ids(recorded, 3, 8), 2, 1, recorded.pad_token_id)
    scored = torch.tensor([[9, 2, 5, 5], [3, 3, 3, 3], [2, 9, 4, 8]])
    for attention_mask in (None, mask):
        full = recorded(ids, attention_mask).logits
        torch.testing.assert_close(recorded(ids, attention_mask, scored=scored).logits, pick(full, scored), **EXACT)


@torch.no_grad()
def test_head_of_hidden_equals_logits(recorded: Denoiser) -> None:
    ids, scored = random_ids(recorded, 2, 7), torch.tensor([[1, 6], [0, 3]])
    for positions in (None, scored):
        output = recorded(ids, scored=positions, return_hidden=True)
        assert output.logits is None
        logits = recorded(ids, scored=positions).logits
        torch.testing.assert_close(recorded.head(output.hidden), logits, **EXACT)
        torch.testing.assert_close(recorded.head(output.hidden[:, 1:]), logits[:, 1:], **EXACT)


def gradients(model: Denoiser) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def test_scored_positions_give_the_gradient_of_the_full_forward(recorded: Denoiser) -> None:
    ids, mask = padded(random_ids(recorded, 2, 8), 2, 0, recorded.pad_token_id)
    scored = torch.tensor([[9, 2, 5, 5], [3, 4, 3, 8]])
    weight = torch.randn(2, 4, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (weight * pick(recorded(ids, mask).logits, scored).log_softmax(-1)).sum().backward()
    expected = gradients(recorded)
    (weight * recorded(ids, mask, scored=scored).logits.log_softmax(-1)).sum().backward()
    assert len(expected) == sum(1 for _ in recorded.parameters())
    for name, gradient in gradients(recorded).items():
        torch.testing.assert_close(gradient, expected[name], **EXACT)


@pytest.mark.parametrize("is_training", [True, False])
def test_gradient_checkpointing_recomputes_and_changes_no_gradient(recorded: Denoiser, is_training: bool) -> None:
    recorded.train(is_training)
    ids, scored = random_ids(recorded, 2, 6), torch.tensor([[1, 5], [0, 2]])
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    norm = "attn_norm" if recorded.family == "llada" else "input_layernorm"
    for block in recorded.blocks():
        getattr(block, norm).register_forward_hook(count)

    found = []
    for enabled in (False, True):
        if enabled:
            recorded.gradient_checkpointing_enable()
        assert recorded.is_gradient_checkpointing is enabled
        calls = 0
        recorded(ids, scored=scored).logits.log_softmax(-1).square().sum().backward()
        assert calls == len(recorded.blocks()) * (2 if enabled else 1)
        found.append(gradients(recorded))
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], atol=0, rtol=0)

    recorded.gradient_checkpointing_disable()
    assert not recorded.is_gradient_checkpointing


def test_reentrant_checkpointing_is_refused(recorded: Denoiser) -> None:
    with pytest.raises(UnmaskError, match="use_reentrant"):
        recorded.gradient_checkpointing_enable({"use_reentrant": True})


@torch.no_grad()
def test_the_first_token_of_a_shifted_family_uses_its_own_output() -> None:
    torch.manual_seed(0)
    model = DreamModel(DreamConfig(**DREAM)).double().eval()
    logits = model(random_ids(model, 1, 5)).logits
    torch.testing.assert_close(logits[:, 0], logits[:, 1], **EXACT)


def test_the_same_seed_gives_the_same_weights() -> None:
    made = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made.append(LLaDAModelLM(LLaDAConfig(**LLADA)).state_dict()["model.transformer.blocks.1.q_proj.weight"])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@torch.no_grad()
def test_llada_ties_and_scales_logits_as_its_config_says() -> None:
    torch.manual_seed(0)
    model = LLaDAModelLM(LLaDAConfig(**LLADA, weight_tying=True, scale_logits=True)).double().eval()
    assert not any("transformer.ff_out" in name for name in model.state_dict())
    ids = random_ids(model, 2, 5)
    hidden = model(ids, return_hidden=True).hidden
    expected = hidden @ model.get_input_embeddings().weight.T / math.sqrt(16)
    torch.testing.assert_close(model(ids).logits, expected, **EXACT)


def test_llada_biases_and_key_value_heads_follow_its_config() -> None:
    block: Any = LLaDAModelLM(LLaDAConfig(**LLADA, include_qkv_bias=True, multi_query_attention=True)).blocks()[0]
    assert block.q_proj.bias is not None and block.attn_out.bias is None
    assert block.k_proj.weight.shape == (8, 16)  # one head of 16 / 2


UNSUPPORTED = [
    (LLaDAConfig, LLADA, "alibi", True),
    (LLaDAConfig, LLADA, "block_type", "sequential"),
    (LLaDAConfig, LLADA, "attention_layer_norm", True),
    (LLaDAConfig, LLADA, "activation_type", "swiglu"),
    (LLaDAConfig, LLADA, "residual_dropout", 0.1),
    (LLaDAConfig, LLADA, "rope", False),
    (LLaDAConfig, LLADA, "d_model", 15),
    (LLaDAConfig, LLADA, "n_layers", "two"),
    (DreamConfig, DREAM, "hidden_act", "gelu"),
    (DreamConfig, DREAM, "use_sliding_window", True),
    (DreamConfig, DREAM, "rope_scaling", {"type": "yarn", "factor": 4.0}),
]


@pytest.mark.parametrize(("config", "settings", "key", "value"), UNSUPPORTED)
def test_a_config_we_would_not_obey_is_refused_in_one_line(
    config: type, settings: dict, key: str, value: object
) -> None:
    model = LLaDAModelLM if config is LLaDAConfig else DreamModel
    with pytest.raises(UnmaskError) as error:
        model(config(**settings | {key: value}))
    assert "\n" not in str(error.value)
    assert key in str(error.value) or str(value) in str(error.value)


def test_a_missing_token_id_is_named() -> None:
    with pytest.raises(UnmaskError, match="mask_token_id is None"):
        _ = LLaDAModelLM(LLaDAConfig(**LLADA)).mask_token_id
