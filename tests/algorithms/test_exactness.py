"""JustGRPO's gradient is the policy gradient: shown over all trajectories of a tiny model, in float64."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from tests.helpers import gradients, policy_gradient
from unmask.decoding import Rollout
from unmask.models import Denoiser

LENGTH = 3


def every_trajectory(model: Denoiser) -> Rollout:
    """All V^L left-to-right responses to one prompt, V = 3."""
    tokens = torch.tensor(list(itertools.product(range(model.vocab_size), repeat=LENGTH)))
    rows = len(tokens)
    zeros = torch.zeros(rows, LENGTH, dtype=torch.float64)
    return Rollout(
        prompt_ids=torch.tensor([[2, 0]]).expand(rows, 2),
        prompt_mask=torch.ones(rows, 2, dtype=torch.bool),
        response_ids=tokens,
        trainable=torch.ones(rows, LENGTH, dtype=torch.bool),
        reveal_step=torch.arange(LENGTH).expand(rows, LENGTH),
        logprob=zeros,
        entropy=zeros,
        prompt=torch.zeros(rows, dtype=torch.int64),
        group=torch.zeros(rows, dtype=torch.int64),
        row_forwards=0,
    )


def response_logprob(model: Denoiser, rollout: Rollout) -> Tensor:
    """(B,) log-probabilities, by the model's full logits, one state after the other."""
    total = torch.zeros(len(rollout.response_ids), dtype=torch.float64)
    for step in range(LENGTH):
        visible = torch.arange(LENGTH) < step
        ids = torch.where(visible, rollout.response_ids, model.mask_token_id)
        logits = model(torch.cat([rollout.prompt_ids, ids], -1)).logits[:, 2 + step]
        total = total + logits.log_softmax(-1).gather(-1, rollout.response_ids[:, step : step + 1]).squeeze(-1)
    return total


def test_expected_gradient_over_all_trajectories_is_the_gradient_of_the_expected_reward(
    make_model: Callable,
) -> None:
    model = make_model(alphabet="a")
    assert model.vocab_size == 3
    rollout = every_trajectory(model)
    reward = torch.rand(27, generator=torch.Generator().manual_seed(0)).double()

    logprob = response_logprob(model, rollout)
    torch.testing.assert_close(logprob.exp().sum().item(), 1.0)  # the policy is exact: it sums to one
    (-(logprob.exp() * reward).sum()).backward()
    expected = gradients(model)

    # JustGRPO without std: A = R − baseline. Weighted by its probability, each trajectory adds A ∇ log p; the baseline
    # may be anything that does not depend on the trajectory. An M-member group's own mean is such a baseline up to the
    # factor (M−1)/M: enumerated below.
    probability = logprob.detach().exp()
    baseline = (probability * reward).sum()
    credit = (probability * (reward - baseline)).view(-1, 1, 1).expand(-1, LENGTH, 1)
    found = policy_gradient(model, rollout, credit, batch_tokens=50)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-10)


def test_groups_of_two_are_unbiased_up_to_the_known_factor(make_model: Callable) -> None:
    """E[Σ_b (R_b − mean) ∇ log p_b] over all 27² pairs is (M−1) times the gradient of the expected reward."""
    model = make_model(alphabet="a")
    rollout = every_trajectory(model)
    reward = torch.rand(27, generator=torch.Generator().manual_seed(1)).double()
    logprob = response_logprob(model, rollout)
    (-(logprob.exp() * reward).sum()).backward()
    expected = gradients(model)

    probability = logprob.detach().exp()
    pair = probability.unsqueeze(-1) * probability  # (27, 27)
    advantage = reward.unsqueeze(-1) - (reward.unsqueeze(-1) + reward) / 2  # of the first member
    weight = 2 * (pair * advantage).sum(-1)  # both members, by symmetry
    credit = weight.view(-1, 1, 1).expand(-1, LENGTH, 1)
    found = policy_gradient(model, rollout, credit)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-10)
