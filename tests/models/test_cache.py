"""Cached forward passes against the authors' code, and against full passes where both see the same."""

import pytest
import torch
from torch import Tensor

from tests.golden_data import golden, golden_model
from unmask.models import Cache, Denoiser, load_model

TOLERANCE = 2e-4


@pytest.fixture
def model(recorded_name: str) -> Denoiser:
    return load_model(golden_model(recorded_name), dtype="float32")


def cached_logits(model: Denoiser, full: Tensor, ids: Tensor, fed: range, visible: int) -> tuple[Tensor, Tensor]:
    """Run `full` (B, T) once, then `ids` (B, W) at the positions `fed`; keys from `visible` on are hidden.

    Returns:
        The authors' alignment of logits (B, W', V): output at each fed position; values kept by the last block.
    """
    rows, length = full.shape
    cache, slot = Cache(rows + 1), torch.arange(rows) + 1
    model(full, scored=torch.zeros(rows, 1, dtype=torch.int64), cache=cache.rows(slot))
    values = cache.blocks[-1][1][slot].clone()
    now = full.clone()
    now[:, fed.start : fed.stop] = ids
    positions = torch.tensor([fed] * rows)
    about = positions + 1 if model.is_shifted else positions
    about = about[:, about[0] < length]
    attention = (torch.arange(length) < visible).expand(rows, -1)
    return model(now, attention, scored=about, cache=cache.rows(slot, positions)).logits, values


@torch.no_grad()
@pytest.mark.parametrize("kind", ["suffix", "window", "dual_block"])
def test_cached_logits_match_the_authors_code(model: Denoiser, recorded_name: str, kind: str) -> None:
    tensors, about = golden(f"parity/{recorded_name}")
    if kind == "dual_block" and model.is_shifted:
        pytest.skip("recorded for LLaDA only")
    full, start = tensors["cache.full_ids"], about["prefix_len"]
    length = full.shape[1]
    end = {"suffix": length, "window": about["window_end"], "dual_block": about["notes"].get("dual_block", [0, 0])[1]}
    fed = range(start, end[kind])
    visible = about["window_end"] if kind == "window" else length
    logits, values = cached_logits(model, full, tensors[f"cache.{kind}_ids"], fed, visible)
    expected = tensors[f"cache.{kind}_logits"][:, : logits.shape[1]]
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)
    last = len(model.blocks()) - 1
    recorded = tensors[f"cache.v.{last}"]
    kept = values[:, :start]
    kept = kept.flatten(2) if model.is_shifted else kept.transpose(1, 2)
    torch.testing.assert_close(kept, recorded, atol=TOLERANCE, rtol=0)


@torch.no_grad()
def test_feeding_everything_is_the_full_pass_and_slots_stay_apart(model: Denoiser, recorded_name: str) -> None:
    case = golden(f"parity/{recorded_name}").tensors
    ids, mask = case["leftpad.input_ids"], case["leftpad.attention_mask"]
    rows, length = ids.shape
    cache, slot = Cache(rows), torch.arange(rows).flip(0)
    scored = torch.arange(length).expand(rows, -1)
    filled = model(ids.flip(1), mask, scored=scored, cache=cache.rows(slot)).logits
    torch.testing.assert_close(filled, model(ids.flip(1), mask).logits, atol=TOLERANCE, rtol=0)
    logits = model(ids, mask, scored=scored, cache=cache.rows(slot, scored)).logits
    torch.testing.assert_close(logits, model(ids, mask).logits, atol=TOLERANCE, rtol=0)


@torch.no_grad()
def test_rows_that_feed_fewer_positions_repeat_their_last(model: Denoiser, recorded_name: str) -> None:
    ids = golden(f"parity/{recorded_name}").tensors["input_ids"]
    length = ids.shape[1]
    changed = torch.where(torch.arange(length) < length // 2, ids, ids.flip(0))

    def run(row: list[int], fed: Tensor, scored: Tensor) -> Tensor:
        cache, slot = Cache(2), torch.arange(len(row))
        model(ids[row], scored=scored, cache=cache.rows(slot))
        return model(changed[row], scored=scored, cache=cache.rows(slot, fed)).logits

    middle = length // 2
    long, short = torch.arange(middle - 1, length), torch.arange(middle - 1, middle + 3)
    padded = torch.cat([short, short[-1:].expand(len(long) - len(short))])
    scored = torch.tensor([[middle, middle + 2]])
    together = run([0, 1], torch.stack([long, padded]), scored.expand(2, -1))
    torch.testing.assert_close(together[:1], run([0], long.unsqueeze(0), scored), atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(together[1:], run([1], short.unsqueeze(0), scored), atol=TOLERANCE, rtol=0)
