"""Our models compute what the authors' code recorded in tests/golden/parity."""

import pytest
import torch
from torch import Tensor

from tests.golden_data import golden, golden_model
from unmask.models import Denoiser, load_model

TOLERANCE = 2e-4
"""Absolute, on logits of standard deviation 2; our order of additions is another."""


@pytest.fixture
def model(recorded_name: str) -> Denoiser:
    return load_model(golden_model(recorded_name), dtype="float32")


def aligned(model: Denoiser, logits: Tensor) -> Tensor:
    """Recorded (.., T, V) logits as ours are: Dream's are about the next token, the first re-uses its own."""
    return torch.cat((logits[..., :1, :], logits[..., :-1, :]), -2) if model.family == "dream" else logits


@torch.no_grad()
def test_logits_match_the_authors_code(model: Denoiser, recorded_name: str) -> None:
    case = golden(f"parity/{recorded_name}").tensors
    expected = aligned(model, case["logits"])
    torch.testing.assert_close(model(case["input_ids"]).logits, expected, atol=TOLERANCE, rtol=0)
    everything = torch.ones_like(case["input_ids"])
    torch.testing.assert_close(model(case["input_ids"], everything).logits, expected, atol=TOLERANCE, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_logits_match_the_authors_code_where_it_masks_keys(
    model: Denoiser, recorded_name: str, side: str
) -> None:
    case = golden(f"parity/{recorded_name}").tensors
    mask = case[f"{side}pad.attention_mask"]
    logits = model(case[f"{side}pad.input_ids"], mask).logits
    if model.family == "llada":
        # Rows of padding are recorded too: they look at the real keys and at nothing else.
        expected = case[f"{side}pad.logits_bidirectional_padded"]
        torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)
        return
    for name in ("logits_masked_posids", "logits_fastdllm_boolmask_posids_ignored"):
        for row, is_real in enumerate(mask.bool()):
            expected = aligned(model, case[f"{side}pad.{name}"][row, is_real])
            torch.testing.assert_close(logits[row, is_real], expected, atol=TOLERANCE, rtol=0)


@torch.no_grad()
def test_logits_after_a_revealed_prefix_match_the_authors_uncached_forward(model: Denoiser, recorded_name: str) -> None:
    tensors, about = golden(f"parity/{recorded_name}")
    prefix = about["prefix_len"]
    ids = torch.cat((tensors["cache.full_ids"][:, :prefix], tensors["cache.suffix_ids"]), 1)
    expected = tensors["cache.suffix_logits_uncached_exact"]
    logits = model(ids).logits[:, prefix:]
    if model.family == "dream":
        logits, expected = logits[:, 1:], expected[:, :-1]
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)


@torch.no_grad()
def test_float64_matches_the_authors_float64(recorded: Denoiser, recorded_name: str) -> None:
    case = golden(f"parity/{recorded_name}").tensors
    if "logits_f64mixed_row0" not in case:
        pytest.skip("not recorded for this model")
    logits = recorded(case["input_ids"][:1]).logits
    assert logits.dtype == torch.float64
    # The authors' norms and rotations stay in float32, ours do not.
    torch.testing.assert_close(logits, aligned(recorded, case["logits_f64mixed_row0"]), atol=2e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_gives_nearly_the_same_logits(recorded_name: str, dtype: str) -> None:
    case = golden(f"parity/{recorded_name}").tensors
    model = load_model(golden_model(recorded_name), dtype=dtype)
    logits = model(case["leftpad.input_ids"], case["leftpad.attention_mask"]).logits
    assert logits.dtype == getattr(torch, dtype)
    exact = load_model(golden_model(recorded_name))(case["leftpad.input_ids"], case["leftpad.attention_mask"]).logits
    real = case["leftpad.attention_mask"].bool()
    assert (logits.float() - exact)[real].abs().mean() < 0.03 * exact.std()
