from collections.abc import Callable

import pytest
import torch

from tests.helpers import make_prompts
from unmask.decoding import Decoding, Rollout, decode, sample
from unmask.decoding.sampler import draw_tokens
from unmask.errors import UnmaskError
from unmask.models import Denoiser

ORDERS = [
    Decoding(order="left_to_right", length=6),
    Decoding(order="static", length=6, block=3, steps=4),
    Decoding(order="dynamic", length=6, block=3, threshold=0.3),
]


def roll(model: Denoiser, decoding: Decoding, rows: torch.Tensor, seed: int = 0) -> Rollout:
    prompts = make_prompts(6, 5, 8, pad=2)
    return sample(
        model,
        prompts.ids[rows],
        prompts.mask[rows],
        decoding,
        prompts.key[rows] + seed,
        prompt=rows,
        group=rows,
    )


@pytest.mark.parametrize("decoding", ORDERS, ids=lambda d: d.order)
def test_same_tokens_whatever_the_batch_size_row_order_and_padding(make_model: Callable, decoding: Decoding) -> None:
    model, rows = make_model(), torch.arange(6)
    whole = roll(model, decoding, rows)
    for order in (rows.flip(0), torch.tensor([3, 1, 5, 0, 2, 4])):
        again = roll(model, decoding, order)
        assert torch.equal(again.response_ids, whole.response_ids[order])
        assert torch.equal(again.reveal_step, whole.reveal_step[order])
    one_by_one = roll(model, decoding.model_copy(update={"batch_tokens": 1}), rows)
    assert torch.equal(one_by_one.response_ids, whole.response_ids)
    unpadded = make_prompts(6, 5, 8, pad=2)
    alone = sample(
        model,
        unpadded.ids[1:2, 2:],
        unpadded.mask[1:2, 2:],
        decoding,
        unpadded.key[1:2],
        prompt=torch.zeros(1, dtype=torch.int64),
        group=torch.zeros(1, dtype=torch.int64),
    )
    assert torch.equal(alone.response_ids[0], whole.response_ids[1])
    torch.testing.assert_close(alone.logprob[0], whole.logprob[1])


@pytest.mark.parametrize("decoding", ORDERS, ids=lambda d: d.order)
def test_recorded_logprob_and_entropy_are_those_of_the_reveal_state(make_model: Callable, decoding: Decoding) -> None:
    model = make_model()
    decoding = decoding.model_copy(update={"temperature": 0.7})
    rollout = roll(model, decoding, torch.arange(6))
    for step in range(int(rollout.reveal_step.max()) + 1):
        visible = rollout.reveal_step < step
        ids = torch.where(visible, rollout.response_ids, model.mask_token_id)
        mask = torch.cat([rollout.prompt_mask, torch.ones_like(visible)], -1)
        with torch.no_grad():
            logits = model(torch.cat([rollout.prompt_ids, ids], -1), mask).logits[:, -6:] / 0.7
        logprobs = logits.log_softmax(-1)
        here = rollout.reveal_step == step
        expected = logprobs.gather(-1, rollout.response_ids.unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(rollout.logprob[here], expected[here])
        torch.testing.assert_close(rollout.entropy[here], -(logprobs.exp() * logprobs).sum(-1)[here])


def test_given_tokens_are_kept_and_not_trainable(make_model: Callable) -> None:
    prompts = make_prompts(4, 5, 8)
    given = torch.randint(2, 8, (4, 6), generator=torch.Generator().manual_seed(3))
    is_given = torch.arange(6) < torch.tensor([[0], [2], [5], [6]])
    rollout = decode(
        make_model(),
        prompts.ids,
        prompts.mask,
        ORDERS[0],
        generator=torch.Generator().manual_seed(0),
        given_ids=given,
        is_given=is_given,
    )
    assert torch.equal(rollout.response_ids[is_given], given[is_given])
    assert torch.equal(rollout.trainable, ~is_given)
    assert (rollout.reveal_step[is_given] == -1).all()
    assert rollout.tokens_generated == 24 - 13 == rollout.row_forwards
    assert rollout.reveal_step[1].tolist() == [-1, -1, 0, 1, 2, 3]


def test_prompts_padded_on_the_right_or_empty_are_refused(make_model: Callable) -> None:
    prompts = make_prompts(2, 5, 8, pad=2)
    generator = torch.Generator()
    for mask in (prompts.mask.flip(-1), torch.zeros_like(prompts.mask)):
        with pytest.raises(UnmaskError, match="padded on the left"):
            decode(make_model(), prompts.ids, mask, ORDERS[0], generator=generator)


def test_finished_rows_cost_nothing(make_model: Callable) -> None:
    """Rows of the dynamic order end after different numbers of steps; each is run exactly as often as it revealed."""
    rollout = roll(make_model(), ORDERS[2], torch.arange(6))
    steps = rollout.reveal_step.max(-1).values + 1
    assert steps.unique().numel() > 1
    assert rollout.row_forwards == int(steps.sum())


def test_tokens_are_drawn_from_the_softmax_at_the_temperature() -> None:
    # 2·10⁵ draws: the largest standard error is 0.0011; a false alarm at 0.006 is below 1e-6
    logits = torch.tensor([2.0, 0.0, -1.0, 1.0])
    draw = torch.rand(200_000, generator=torch.Generator().manual_seed(0)).double()
    token, logprob, _ = draw_tokens(logits.expand(200_000, 4), 0.5, draw)
    wanted = (logits / 0.5).softmax(-1)
    torch.testing.assert_close(torch.bincount(token, minlength=4) / 200_000, wanted, rtol=0, atol=0.006)
    torch.testing.assert_close(logprob.exp(), wanted[token])


def test_temperature_zero_takes_the_most_likely_token_and_reports_temperature_one() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    token, logprob, entropy = draw_tokens(logits, 0.0, torch.tensor([0.999]).double())
    assert token.item() == 1
    torch.testing.assert_close(logprob, logits.log_softmax(-1)[:, 1])
    assert entropy.item() > 0


def test_a_token_that_cannot_be_drawn_has_no_part_in_the_entropy() -> None:
    _, _, entropy = draw_tokens(torch.tensor([[0.0, -torch.inf, 0.0]]), 1.0, torch.tensor([0.5]).double())
    torch.testing.assert_close(entropy, torch.tensor([2.0]).log())
