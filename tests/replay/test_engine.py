"""The replay engine against the plainest way to compute the same: one state at a time, all logits, autograd."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

import unmask.replay.engine as engine
from tests.helpers import gradients, make_prompts, policy_gradient
from unmask.decoding import Decoding, Rollout, sample
from unmask.models import Denoiser
from unmask.randomness import derive
from unmask.replay import Replay, Scores, reveal_states

DECODINGS = [
    Decoding(order="left_to_right", length=6, temperature=0.8),
    Decoding(order="static", length=6, block=3, steps=4, temperature=0.8),
]


def roll(model: Denoiser, decoding: Decoding, same_prompt: int = 1) -> Rollout:
    """Five prompts, `same_prompt` responses to each."""
    prompts = make_prompts(5, 5, 8, pad=2)
    prompt = torch.arange(5).repeat_interleave(same_prompt)
    key = derive(prompts.key[prompt], torch.arange(len(prompt)))
    return sample(model, prompts.ids[prompt], prompts.mask[prompt], decoding, key, prompt=prompt, group=prompt)


def random_credit(rollout: Rollout) -> Tensor:
    credit = torch.randn(*rollout.response_ids.shape, 2, generator=torch.Generator().manual_seed(5)).double()
    credit[2] = 0  # a response without credit
    credit[0, 1] = 0  # and a token
    return credit


def plain_gradient(model: Denoiser, rollout: Rollout, credit: Tensor, temperature: float) -> dict[str, Tensor]:
    """−Σ credit · log p, token by token, from the definition of a reveal state."""
    total = torch.zeros((), dtype=torch.float64)
    for row, position in (credit != 0).any(-1).nonzero().tolist():
        visible = rollout.reveal_step[row] < rollout.reveal_step[row, position]
        ids = torch.where(visible, rollout.response_ids[row], model.mask_token_id)
        mask = torch.cat([rollout.prompt_mask[row], torch.ones_like(visible)])
        logits = model(torch.cat([rollout.prompt_ids[row], ids])[None], mask[None]).logits[0, -len(ids) :] / temperature
        logprob = logits[position].log_softmax(-1)[rollout.response_ids[row, position]]
        total = total - credit[row, position].sum() * logprob
    total.backward()
    return gradients(model)


@pytest.mark.parametrize("decoding", DECODINGS, ids=lambda d: d.order)
@pytest.mark.parametrize("batch_tokens", [1, 25, 60, 10**6])
@pytest.mark.parametrize("same_prompt", [1, 6])
def test_gradients_do_not_depend_on_micro_batches(
    make_model: Callable, decoding: Decoding, batch_tokens: int, same_prompt: int
) -> None:
    model = make_model()
    rollout = roll(model, decoding, same_prompt)
    credit = random_credit(rollout)
    expected = plain_gradient(model, rollout, credit, 0.8)
    found = policy_gradient(model, rollout, credit, batch_tokens=batch_tokens, temperature=0.8)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-11)


def test_gradients_do_not_depend_on_row_order_or_padding(make_model: Callable) -> None:
    model = make_model()
    rollout = roll(model, DECODINGS[0])
    credit = random_credit(rollout)
    expected = policy_gradient(model, rollout, credit)
    order = torch.tensor([3, 0, 4, 2, 1])
    shuffled = rollout.take(order)
    padded = replace(
        rollout,
        prompt_ids=nn.functional.pad(rollout.prompt_ids, (3, 0)),
        prompt_mask=nn.functional.pad(rollout.prompt_mask, (3, 0)),
    )
    for other, other_credit in [(shuffled, credit[order]), (padded, credit)]:
        found = policy_gradient(model, other, other_credit)
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("decoding", DECODINGS, ids=lambda d: d.order)
def test_replay_logprobs_are_the_rollouts(make_model: Callable, decoding: Decoding) -> None:
    model = make_model(dtype=torch.float32)
    rollout = roll(model, decoding)
    states = reveal_states(rollout, rollout.trainable)
    found = Replay(model, rollout, temperature=0.8, batch_tokens=40).score(states)
    torch.testing.assert_close(found, rollout.logprob[states.row, states.position], rtol=0, atol=1e-5)


def test_states_without_credit_are_never_run(make_model: Callable) -> None:
    model = make_model()
    rollout = roll(model, DECODINGS[0])
    credit = random_credit(rollout)
    states = reveal_states(rollout, (credit != 0).any(-1))
    assert len(states) == states.asked == int((credit != 0).any(-1).sum()) == 4 * 6 - 1
    nothing = reveal_states(rollout, torch.zeros_like(rollout.trainable))
    assert len(nothing) == 0
    model.forward = lambda *_, **__: pytest.fail("the model ran")
    Replay(model, rollout, temperature=0.8, batch_tokens=40).accumulate(nothing, LOGPROB)
    assert all(parameter.grad is None for parameter in model.parameters())


@dataclass
class Anything:
    """A loss of any function of all log-probabilities."""

    function: Callable[[Scores], Tensor]
    is_separable: bool

    def loss(self, scores: Scores) -> Tensor:
        return self.function(scores)


LOGPROB = Anything(lambda scores: scores.logprob.sum(), is_separable=True)


@pytest.mark.parametrize("chunk", [None, 3])
def test_a_sequence_level_loss_has_exact_gradients_under_micro_batching(
    make_model: Callable, monkeypatch: pytest.MonkeyPatch, chunk: int | None
) -> None:
    model = make_model()
    rollout = roll(model, DECODINGS[1])
    states = reveal_states(rollout, (random_credit(rollout) != 0).any(-1))

    def loss(scores: Scores) -> Tensor:
        zeros = torch.zeros(5, dtype=torch.float64)
        per_response = zeros.index_add(0, states.row[scores.number], scores.logprob)
        return per_response.div(6).exp().square().sum()

    whole = Replay(model, rollout, temperature=0.8, batch_tokens=10**6)
    joint, expected_value = whole.accumulate(states, Anything(loss, is_separable=True))  # one batch: plain autograd
    wanted = gradients(model)
    if chunk:
        monkeypatch.setattr(engine, "HEAD_CHUNK", {"cpu": chunk * model.vocab_size})
    scores, value = Replay(model, rollout, temperature=0.8, batch_tokens=30).accumulate(
        states, Anything(loss, is_separable=False)
    )
    torch.testing.assert_close(value, expected_value)
    torch.testing.assert_close(scores.logprob, joint.logprob)
    for name, found in gradients(model).items():
        torch.testing.assert_close(found, wanted[name], rtol=1e-9, atol=1e-12)


def test_responses_that_meet_in_a_state_run_it_once(make_model: Callable) -> None:
    model = make_model()
    rollout = roll(model, DECODINGS[0], same_prompt=6)
    credit = torch.randn(*rollout.response_ids.shape, 1, generator=torch.Generator().manual_seed(5)).double()
    states = reveal_states(rollout, (credit != 0).any(-1))
    prefixes = {
        (int(prompt), *tokens[:position])
        for prompt, tokens in zip(rollout.prompt, rollout.response_ids.tolist(), strict=True)
        for position in range(6)
    }
    assert len(states) == len(prefixes) < states.asked == 30 * 6
    assert rollout.row_forwards == len(prefixes)
    # the start state of a prompt scores the first token of all its responses
    start = states.state[(states.row == 0) & (states.position == 0)]
    assert sorted(states.row[states.state == start].tolist()) == [0, 1, 2, 3, 4, 5]


def test_the_head_in_chunks_changes_nothing(make_model: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    rollout = roll(model, DECODINGS[1])
    credit = random_credit(rollout)
    expected = policy_gradient(model, rollout, credit)
    monkeypatch.setattr(engine, "HEAD_CHUNK", {"cpu": 2 * model.vocab_size})
    found = policy_gradient(model, rollout, credit)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-12)


def test_dropout_is_the_same_in_both_passes_of_a_joint_loss(make_model: Callable) -> None:
    model = make_model()
    block = model.blocks()[0]
    block.attn_out = nn.Sequential(block.attn_out, nn.Dropout(0.5))
    model.train()
    rollout = roll(model, DECODINGS[0])
    states = reveal_states(rollout, rollout.trainable)
    replay = Replay(model, rollout, temperature=0.8, batch_tokens=40, dropout_seed=7)
    first = replay.score(states)
    torch.rand(3)  # somebody else uses the global stream
    second, _ = replay.accumulate(states, LOGPROB)
    assert torch.equal(first, second.logprob)
    other = Replay(model, rollout, temperature=0.8, batch_tokens=40, dropout_seed=8)
    assert not torch.equal(first, other.score(states))
