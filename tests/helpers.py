"""What several tests build: an actor with rewards of the test's choice, prompts, gradients by name."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.algorithms import Prompts
from unmask.decoding import Decoding, Follow, Rollout, sample
from unmask.models import Denoiser
from unmask.objectives import ReinforceObjective
from unmask.replay import Replay, reveal_states


@dataclass
class FixedActor:
    """Samples from a model and judges with a function of the rollout."""

    model: Denoiser
    decoding: Decoding
    judge: Callable[[Rollout], Tensor]
    reward_range: float = 1.0
    end_token_id: int = 0

    def sample(
        self,
        prompts: Prompts,
        prompt: Tensor,
        key: Tensor,
        group: Tensor,
        given_ids: Tensor | None = None,
        is_given: Tensor | None = None,
        follow: Follow | None = None,
    ) -> Rollout:
        return sample(
            self.model,
            prompts.ids[prompt],
            prompts.mask[prompt],
            self.decoding,
            key,
            prompt=prompt,
            group=group,
            given_ids=given_ids,
            is_given=is_given,
            follow=follow,
        )

    def reward(self, prompts: Prompts, rollout: Rollout) -> Tensor:
        return self.judge(rollout).to(rollout.logprob.dtype)

    def total(self, value: float) -> float:
        return value

    def gather(self, rows: Tensor) -> tuple[Tensor, int]:
        return rows, 0


def make_prompts(n: int, length: int, vocabulary: int, seed: int = 0, pad: int = 0) -> Prompts:
    """`n` random prompts; the first `pad` positions of every second one are padding."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, vocabulary, (n, length), generator=generator)
    mask = torch.ones(n, length, dtype=torch.bool)
    mask[1::2, :pad] = False
    ids[~mask] = 0
    return Prompts(ids, mask, torch.arange(n) + 1000 * seed, tuple({} for _ in range(n)))


def parity_reward(rollout: Rollout) -> Tensor:
    """1 where the response's token ids sum to an even number, else 0: varied, and a function of the tokens alone."""
    return (rollout.response_ids.sum(-1) % 2 == 0).double()


def gradients(model: Denoiser) -> dict[str, Tensor]:
    """Gradients by parameter name, cleared from the model."""
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def policy_gradient(
    model: Denoiser, rollout: Rollout, credit: Tensor, *, batch_tokens: int = 10**9, temperature: float = 1.0
) -> dict[str, Tensor]:
    """Gradients of −Σ credit · log p over all tokens in their reveal states, by the replay engine; credit (B, L, C)."""
    states = reveal_states(rollout, (credit != 0).any(-1))
    replay = Replay(model, rollout, temperature=temperature, batch_tokens=batch_tokens)
    replay.accumulate(states, ReinforceObjective(credit.sum(-1)[states.row, states.position]))
    return gradients(model)
