"""TraceRL: learn along the trace, in the states through which the rollout was decoded. Without the paper's value model.

    explore    M independent responses to each prompt, one group; block-wise, usually the dynamic order
    credit     A = (R − mean) / population std, the same for every token of a response; zero where all rewards are equal
    replay     the reveal steps of a response in slices of `shrink`: the state before a slice's first step is looked at
               once, and the tokens revealed in the slice are scored in it
    objective  (1/S) Σ_s [mean of −ℓ(ρ, A) + sum of β KL] over the tokens scored in state s; S counts the states of all
               responses and workers, also those with A = 0

METHODS "Baselines". The authors' divergence is from the policy that sampled: `objective.reference: rollout`.
"""

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from unmask.algorithms.algorithm import Actor, Experience, Plan, Prompts, check_varied, sample_group, spread
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import floored_advantage
from unmask.decoding import Decoding, Rollout
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import masked_states


class TraceRLSettings(BaseModel):
    """Defaults are the authors', for LLaDA."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["tracerl"] = "tracerl"
    """Policy optimization along the decoding trace."""
    group_size: int = Field(8, ge=2)
    """M: responses to each prompt."""
    shrink: int = Field(8, ge=1)
    """Consecutive reveal steps whose tokens are scored in one state, the first step's; 1 = every token in its own."""
    end_tokens: int | None = Field(0, ge=0)
    """How many of a response's end tokens are trained on, the first ones; none = all of them."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_varied("tracerl", decoding.temperature)


class TraceRL:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: TraceRLSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        rollout, key = sample_group(prompts, actor, self.settings.group_size)
        reward = actor.reward(prompts, rollout)
        advantage = floored_advantage(reward, rollout.group, 0.0, ddof=0)
        return Experience(rollout, reward, spread(advantage, rollout), advantage, key)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        return [self.plan(experience, actor, *self.slices(experience.rollout, actor.end_token_id))] * updates

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        responses = outcome.responses(only_mixed=not self.objective.kl_weight)
        return Replayed.of(responses, -(-decoding.most_steps // self.settings.shrink), decoding.length)

    def slices(self, rollout: Rollout, end_token_id: int) -> tuple[Tensor, Tensor, Tensor]:
        """The states of all slices in which a token is trained on, response by response.

        Returns:
            response (A,); visible (A, L) bool; scored (A, L) bool.
        """
        trained = rollout.trainable
        if self.settings.end_tokens is not None:
            is_end = rollout.response_ids == end_token_id
            trained = trained & ~(is_end & (is_end.cumsum(-1) > self.settings.end_tokens))
        part = rollout.reveal_step // self.settings.shrink  # (B, L) the slice that revealed each token
        length = part.shape[1]
        row, position = trained.nonzero(as_tuple=True)
        own, which = torch.unique(row * length + part[row, position], return_inverse=True)  # (A,)
        response, number = own // length, own % length
        scored = torch.zeros(len(own), length, dtype=torch.bool, device=row.device)
        scored[which, position] = True
        return response, part[response] < number.unsqueeze(-1), scored

    def plan(self, experience: Experience, actor: Actor, response: Tensor, visible: Tensor, scored: Tensor) -> Plan:
        """An update on the given states: response (A,), visible (A, L), scored (A, L)."""
        rollout, advantage = experience.rollout, experience.credit
        share = 1 / max(actor.total(int(scored.any(-1).sum())), 1)  # of a state in the mean over all workers' states
        if not self.objective.kl_weight:
            scored = scored & (advantage[response] != 0).unsqueeze(-1)
        states = masked_states(rollout, response, visible, scored)
        count = scored.sum(-1).to(advantage.dtype)  # (A,)
        credit = share * advantage[states.row] / count[states.source]
        divergence = torch.full_like(credit, share)
        return Plan(states, ClippedObjective(states, self.objective, credit.unsqueeze(-1), kl_weight=divergence))
