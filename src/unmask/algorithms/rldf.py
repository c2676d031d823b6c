"""RLDF, reinforcement learning from denoising feedback: a few informative steps of each response, clean targets.

    explore    M responses to each prompt, in any order (the paper: blocks of 32, dynamic at 0.9); the rollout records
               when each token was revealed and how probable it was
    credit     A = (R − mean) / max(std, δ); groups without reward variation are dropped
    replay     k steps of each response, drawn without replacement from softmax(P_t / τ), P_t = −mean log p of the
               tokens revealed at t. Their states show what was revealed before t; scored are all masked tokens (the
               clean state x₀) or only those revealed at t (the next state)
    objective  token clipping keeps the tokens with p(y_i | s_t) ≥ threshold under the policy before the first update;
               −A log p for one update a rollout, −ℓ(ρ, A) for more, plus β KL, averaged over the kept tokens of a
               state, the states of a response and the responses (`sample`), or over all kept tokens of the j-th states
               of all responses, then over j (`token`)

METHODS "RLDF". The authors' code differs from the paper in the standard deviation (`advantage_ddof: 1`) and in keeping
the tokens revealed at t whatever their probability (`keep_revealed`); it leaves out end tokens, which here are tokens
like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from unmask.algorithms.algorithm import Actor, Experience, Plan, Prompts, check_varied, sample_group, spread
from unmask.algorithms.work import Outcome, Replayed, Window
from unmask.credit import floored_advantage, group_statistics
from unmask.decoding import Decoding, Rollout
from unmask.objectives import (
    ObjectiveSettings,
    clipped,
    clipped_surrogate,
    kl_estimate,
    reference_logprob,
    truncated_importance,
)
from unmask.randomness import uniform
from unmask.replay import Scores, States, masked_states, masking_keys


class RLDFSettings(BaseModel):
    """Defaults are the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Literal["rldf"] = "rldf"
    """Clean-state targets at a few uncertain steps of each response."""
    group_size: int = Field(4, ge=2)
    """M: responses to each prompt."""
    steps: int = Field(16, ge=1)
    """k: reveal steps replayed of each response; a response with fewer has all of them replayed."""
    step_temperature: float = Field(1.0, ge=0, allow_inf_nan=True)
    """τ: 0 takes the k least certain steps, .inf draws all steps alike."""
    target: Literal["clean_state", "next_state"] = "clean_state"
    """What is scored in a step's state: every masked token, or only those that the step revealed."""
    threshold: float = Field(0.2, ge=0, le=1)
    """Token clipping: clean-state tokens less probable than this are left out; 0 keeps all."""
    keep_revealed: bool = False
    """Keep the tokens that the step revealed whatever their probability, as the authors' code does."""
    normalization: Literal["sample", "token"] = "sample"
    """Every response counts alike, or every kept token does."""
    advantage_floor: float = Field(1e-2, ge=0)
    """δ: the standard deviation is taken to be at least this, in units of reward."""
    advantage_ddof: Literal[0, 1] = 0
    """0 = standard deviation of the population, as in the paper; 1 = of the sample, as in the authors' code."""

    def check(self, decoding: Decoding, objective: ObjectiveSettings) -> None:
        check_varied("rldf", decoding.temperature)


class RLDF:
    windows: tuple[Window, ...] = ()

    def __init__(self, settings: RLDFSettings, objective: ObjectiveSettings) -> None:
        self.settings, self.objective = settings, objective

    def collect(self, prompts: Prompts, actor: Actor) -> Experience:
        settings = self.settings
        rollout, key = sample_group(prompts, actor, settings.group_size)
        reward = actor.reward(prompts, rollout)
        advantage = floored_advantage(reward, rollout.group, settings.advantage_floor, ddof=settings.advantage_ddof)
        return Experience(rollout, reward, spread(advantage, rollout), advantage, key)

    def replay(self, experience: Experience, actor: Actor, updates: int) -> list[Plan]:
        rollout = experience.rollout
        is_mixed = group_statistics(experience.reward, rollout.group).is_mixed[rollout.group]
        chosen = choose_steps(rollout, experience.key, self.settings.steps, self.settings.step_temperature)  # (B, L)
        response, step = (chosen & is_mixed.unsqueeze(-1)).nonzero(as_tuple=True)  # (A,)
        reveal_step = rollout.reveal_step[response]
        at_step = reveal_step == step.unsqueeze(-1)
        masked = reveal_step >= step.unsqueeze(-1)
        sampled = rollout.trainable[response]  # what is behind the end stays masked and is never scored
        rank = chosen.cumsum(-1)[response, step] - 1
        if self.settings.normalization == "sample":
            weight = 1 / (actor.total(int(is_mixed.sum())) * chosen.sum(-1)[response].to(experience.reward))
        else:
            weight = torch.full_like(step, 1 / self.settings.steps, dtype=experience.reward.dtype)
        scored = masked & sampled if self.settings.target == "clean_state" else at_step
        plan = self.plan(
            experience, response, ~masked, scored, at_step, rank, weight, updates=updates, total=actor.total
        )
        return [plan] * updates

    def replayed(self, decoding: Decoding, outcome: Outcome) -> Replayed:
        steps = min(self.settings.steps, decoding.most_steps)
        tokens = steps * decoding.length if self.settings.target == "clean_state" else decoding.length
        return Replayed.of(outcome.responses(), steps, tokens)

    def plan(
        self,
        experience: Experience,
        response: Tensor,
        visible: Tensor,
        scored: Tensor,
        at_step: Tensor,
        rank: Tensor,
        weight: Tensor,
        *,
        updates: int,
        total: Callable[[float], float],
    ) -> Plan:
        """The objective on given states.

        Args:
            response: (A,) the response of each state.
            visible, scored, at_step: (A, L) bool: shown, scored, revealed in the state.
            rank: (A,) int64 which of its response's states each is, from 0.
            weight: (A,) of each state in the loss (`sample`), or of its rank (`token`).
            updates: how often the rollout is learned from.
            total: sum of a number over all workers.
        """
        states = masked_states(experience.rollout, response, visible, scored)
        is_clipped = self.settings.target == "clean_state"
        kept = at_step[states.source, states.position] & self.settings.keep_revealed
        objective = CleanStateObjective(
            states=states,
            settings=self.objective,
            advantage=experience.credit,
            threshold=self.settings.threshold if is_clipped else 0.0,
            always_kept=kept,
            rank=rank,
            weight=weight,
            normalization=self.settings.normalization,
            ranks=self.settings.steps,
            is_reinforce=updates == 1,
            total=total,
        )
        return Plan(states, objective)


def choose_steps(rollout: Rollout, key: Tensor, count: int, temperature: float) -> Tensor:
    """Weighted timestep sampling: which reveal steps of each response are replayed.

    Args:
        key: (B,) the responses' randomness keys.
        count: k; where a response has no more steps than that, all are chosen.
        temperature: τ of the softmax over P_t, may be 0 or infinite.

    Returns:
        (B, L) bool by step.

    Source: RLDF, equations 5 and 6 (METHODS "RLDF", replay). Gumbel noise on the weights' logarithms and the k largest
    is drawing one after the other without replacement.
    """
    is_sampled = rollout.trainable
    step = torch.where(is_sampled, rollout.reveal_step, 0)
    zeros = torch.zeros_like(rollout.logprob)
    tokens = zeros.scatter_add(-1, step, is_sampled.to(zeros))
    surprise = -zeros.scatter_add(-1, step, torch.where(is_sampled, rollout.logprob, 0)) / tokens.clamp(min=1)  # P_t
    if temperature > 0:
        draws = masking_keys(key.to(step.device), 1)  # (B, 1)
        draw = uniform(draws, torch.arange(step.shape[-1], device=step.device))
        surprise = surprise.double() / temperature - (-draw.log()).log()
    surprise = surprise.masked_fill(tokens == 0, -torch.inf)
    place = surprise.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    return (place < count) & (tokens > 0)


@dataclass(frozen=True)
class CleanStateObjective:
    """Policy loss and divergence on the tokens that clipping keeps (see the module's first lines)."""

    states: States
    settings: ObjectiveSettings
    advantage: Tensor
    """(B,) of each response."""
    threshold: float
    """Least probability of a kept token."""
    always_kept: Tensor
    """(N,) bool: kept whatever its probability."""
    rank: Tensor
    """(A,) int64 by state asked for."""
    weight: Tensor
    """(A,) by state asked for."""
    normalization: Literal["sample", "token"]
    ranks: int
    """Number of different ranks, the same on all workers."""
    is_reinforce: bool
    """−A log p instead of the clipped ratio; their gradients agree where the ratio is 1."""
    total: Callable[[float], float]
    uses_old: bool = True

    @property
    def is_separable(self) -> bool:
        # a mean over a state is known within it, a mean over all responses only in the end
        return self.normalization == "sample"

    def loss(self, scores: Scores) -> Tensor:
        scores = self._kept(scores)
        source = self.states.source[scores.number]
        if self.normalization == "sample":
            count = torch.bincount(source, minlength=len(self.weight))  # (A,) kept tokens of each state
            share = self.weight[source] / count[source]
        else:
            rank = self.rank[source]
            count = torch.bincount(rank, minlength=self.ranks)
            count = torch.tensor([self.total(value) for value in count.tolist()], device=rank.device)
            share = self.weight[source] / count[rank]
        return (share * self._token_loss(scores)).sum()

    def measure(self, scores: Scores) -> dict[str, Tensor]:
        scores = self._kept(scores)
        kept = torch.bincount(self.states.source[scores.number], minlength=len(self.weight))
        clip = {"clip_low": self.settings.clip_low, "clip_high": self.settings.clip_high}
        advantage = self.advantage[self.states.row[scores.number]]
        measures = {
            "rldf/token_utility": kept / self.states.visible.shape[-1],
            "policy/clip_fraction": clipped(scores.logprob, scores.old, advantage, **clip),
        }
        reference = reference_logprob(self.settings, scores)
        if reference is not None:
            measures["kl"] = kl_estimate(scores.logprob, reference, self.settings.kl_estimator)
        return measures

    def _kept(self, scores: Scores) -> Scores:
        return scores.select((scores.old.exp() >= self.threshold) | self.always_kept[scores.number])

    def _token_loss(self, scores: Scores) -> Tensor:
        advantage = self.advantage[self.states.row[scores.number]]
        if self.settings.mismatch == "truncate":
            advantage = advantage * truncated_importance(scores, self.states)
        if self.is_reinforce:
            loss = -scores.logprob * advantage
        else:
            clip = {"clip_low": self.settings.clip_low, "clip_high": self.settings.clip_high}
            loss = clipped_surrogate(scores.logprob, scores.old, advantage, **clip)
        reference = reference_logprob(self.settings, scores)
        if reference is not None:
            loss = loss + self.settings.kl_weight * kl_estimate(scores.logprob, reference, self.settings.kl_estimator)
        return loss
