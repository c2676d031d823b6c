import itertools
import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.algorithms.recorded import (
    actor_of,
    check_update,
    recorded_experience,
    recorded_gradients,
    recorded_model,
    recorded_rollout,
    replay_of,
)
from tests.golden_data import golden
from tests.helpers import FixedActor, gradients, make_prompts, parity_reward
from unmask.algorithms import ESPO, ESPOSettings, Plan
from unmask.credit import leave_one_out_advantage
from unmask.decoding import Decoding
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import Replay

STEPS = [
    (file, key)
    for file in ("espo_llada", "espo_dream")
    for key in sorted(golden(f"loss/{file}").about["cases"])
    if re.search(r"\.step\d+$", key)
]


def elbo(plan: Plan, logprob: Tensor, length: int) -> Tensor:
    """(B,) of the plan's responses, from log-probabilities (N,)."""
    objective = plan.objective
    assert isinstance(objective, ClippedObjective) and objective.unit is not None and objective.weight is not None
    return length * logprob.new_zeros(len(objective.credit)).index_add(0, objective.unit, objective.weight * logprob)


@pytest.mark.parametrize(("file", "key"), STEPS)
def test_loss_and_gradients_are_the_authors(file: str, key: str) -> None:
    tensors, about = golden(f"loss/{file}")
    case, step = key.rsplit(".", 1)
    hyper, models, recorded = (about["cases"][f"{case}.{what}"] for what in ("hyper", "models", step))
    prompt_ids, response_ids, reward = tensors["prompt_ids"], tensors["completion_ids"], tensors["rewards"]
    length, draws = response_ids.shape[1], hyper["num_mc"]
    model = recorded_model(models["current"])
    eps = 1e-4 if hyper.get("scale_rewards", True) else None
    advantage = leave_one_out_advantage(reward, recorded_rollout(prompt_ids, response_ids).group, eps)
    torch.testing.assert_close(advantage, tensors[f"{case}.advantages"], rtol=1e-4, atol=1e-5)

    algorithm = ESPO(
        ESPOSettings(advantage_eps=eps, draws=draws),
        ObjectiveSettings(
            clip_low=hyper["epsilon_low"], clip_high=hyper["epsilon_high"], kl_weight=hyper["beta"], kl_estimator="k2"
        ),
    )

    def subset(calls: list[str]) -> Tensor:
        """(B, D, L) of the recorded masks, whose sizes are p_mask · (L + 1)."""
        masked = torch.stack(
            [tensors[f"{case}.{call}.noisy_ids"][:, -length:] == model.mask_token_id for call in calls], dim=1
        )
        share = torch.stack([tensors[f"{case}.{call}.p_mask"] for call in calls], dim=1)
        torch.testing.assert_close(masked.sum(-1) / (length + 1), share)
        return masked

    chosen = slice(*recorded["rows"])
    assert recorded["num_mask_calls"] == draws
    masked = subset([f"{step}.mask_call{draw}" for draw in range(draws)])
    rollout = recorded_rollout(prompt_ids[chosen], response_ids[chosen])
    plan = algorithm.plan(recorded_experience(rollout, advantage[chosen]), actor_of(model), masked)
    replay = replay_of(model, rollout)

    updates, micro_batches = hyper["num_iterations"], hyper["gradient_accumulation_steps"]
    update = (recorded["_step_at_loss"] - 1) // micro_batches % updates
    micro_batch = (recorded["_step_at_loss"] - 1) % micro_batches

    def before(which: str, offset: int) -> Tensor | None:
        """(N,) what `which` policy made of the tokens; its masks are recorded micro-batch by micro-batch."""
        if f"{case}.{which}_per_token_logps" not in tensors:
            return None
        first = ((offset + micro_batch) * updates + update) * draws
        assert torch.equal(subset([f"gen_mask_call{first + draw}" for draw in range(draws)]), masked)
        logprob = replay.score(plan.states, recorded_model(models[which]))
        kept = tensors[f"{case}.{which}_per_token_logps"][chosen, update]
        torch.testing.assert_close(elbo(plan, logprob, length), kept, rtol=1e-5, atol=1e-3)
        return logprob

    check_update(
        replay,
        plan,
        recorded_gradients(tensors, key),
        loss=recorded["loss"],
        grad_norm=recorded["grad_norm"],
        old=before("old", 0),
        reference=before("ref", micro_batches if updates > 1 else 0),
    )


def make_algorithm(kl_weight: float = 0.0, draws: int = 2) -> ESPO:
    return ESPO(ESPOSettings(group_size=4, draws=draws), ObjectiveSettings(kl_weight=kl_weight, kl_estimator="k2"))


def test_equal_rewards_give_exactly_zero_policy_gradient(make_model: Callable) -> None:
    model = make_model()
    actor = FixedActor(model, Decoding(length=6), lambda rollout: torch.full((len(rollout.group),), 0.1))
    for kl_weight in (0.0, 0.1):
        algorithm = make_algorithm(kl_weight)
        experience = algorithm.collect(make_prompts(3, 5, 8), actor)
        (plan,) = algorithm.replay(experience, actor, 1)
        assert (len(plan.states) > 0) == (kl_weight > 0)  # without a divergence there is nothing to replay
        replay = Replay(model, experience.rollout, temperature=1.0, batch_tokens=100)
        _, loss = replay.accumulate(plan.states, plan.objective)
        assert loss == 0 and all((gradient == 0).all() for gradient in gradients(model).values())


def test_every_token_is_scored_once_a_draw_also_behind_the_end(make_model: Callable) -> None:
    actor = FixedActor(make_model(), Decoding(length=6), parity_reward, end_token_id=3)
    algorithm = make_algorithm(0.1, draws=3)
    experience = algorithm.collect(make_prompts(3, 5, 8), actor)
    for plan in algorithm.replay(experience, actor, 2):
        states = plan.states
        times = torch.zeros(len(experience.reward), 3, 6, dtype=torch.int64)
        place = (states.row, states.source // 2 % 3, states.position)
        times.index_put_(place, torch.tensor(1), accumulate=True)
        assert (times == 1).all()


def test_the_estimate_is_unbiased_in_every_size_of_mask(make_model: Callable) -> None:
    length = 4
    algorithm = make_algorithm(0.1, draws=1)
    subsets = torch.tensor(list(itertools.product([False, True], repeat=length)))
    response_ids = torch.full((len(subsets), length), 2)
    rollout = recorded_rollout(torch.arange(len(subsets)).unsqueeze(-1), response_ids)
    plan = algorithm.plan(
        recorded_experience(rollout, torch.ones(len(subsets))), actor_of(make_model()), subsets.unsqueeze(1)
    )
    assert isinstance(plan.objective, ClippedObjective) and plan.objective.weight is not None
    # a size has probability 1/(L+1), a subset 1/C(L, x) of that
    chance = torch.tensor([1 / (length + 1) / math.comb(length, int(x)) for x in subsets.sum(-1)])
    hidden = (~plan.states.visible).sum(-1)[plan.states.state]
    expected = torch.zeros(length, length + 1).index_put_(
        (plan.states.position, hidden), plan.objective.weight * chance[plan.states.row], accumulate=True
    )
    # ELBO/L = Σ_i mean over sizes 1..L of log p_i / x, where i is masked with probability x/L
    torch.testing.assert_close(expected[:, 1:], torch.full((length, length), 1 / length**2))


def test_masks_depend_on_the_response_the_update_and_the_draw_alone(make_model: Callable) -> None:
    algorithm = make_algorithm()
    key = torch.arange(6000).view(3000, 2)
    subset = algorithm.draw(key, 9)
    assert torch.equal(algorithm.draw(key[17:20], 9), subset[17:20])
    # 6,000 draws of 10 sizes: 600 each with a standard deviation of 23, so 150 is six of them
    sizes = torch.bincount(subset.sum(-1).flatten(), minlength=10)
    assert len(sizes) == 10 and (sizes - 600).abs().max() < 150

    actor = FixedActor(make_model(), Decoding(length=12), parity_reward)
    experience = algorithm.collect(make_prompts(2, 5, 8), actor)
    plans = algorithm.replay(experience, actor, 3)
    shown = [plan.states.visible for plan in plans]
    assert not torch.equal(shown[0], shown[1]) and not torch.equal(shown[1], shown[2])
    (alone,) = algorithm.replay(experience, actor, 1)
    assert torch.equal(alone.states.visible, shown[0])


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"objective.mismatch=truncate: espo"):
        ESPOSettings().check(Decoding(), ObjectiveSettings(mismatch="truncate"))
    with pytest.raises(ValueError, match=r"decoding.temperature=0: espo"):
        ESPOSettings().check(Decoding(temperature=0), ObjectiveSettings())
