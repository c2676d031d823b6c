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
from unmask.algorithms import CoupledGRPO, CoupledGRPOSettings, Plan
from unmask.algorithms.algorithm import until_end
from unmask.credit import leave_one_out_advantage
from unmask.decoding import Decoding, Rollout
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import Replay

STEPS = sorted(key for key in golden("loss/coupled_grpo").about["cases"] if re.search(r"\.step\d+$", key))


def unit_values(plan: Plan, logprob: Tensor, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Token values (B, L) from log-probabilities (N,), and where there are any."""
    assert isinstance(plan.objective, ClippedObjective) and plan.objective.weight is not None
    value, scored = torch.zeros(rows, length), torch.zeros(rows, length, dtype=torch.bool)
    place = (plan.states.row, plan.states.position)
    value.index_put_(place, plan.objective.weight * logprob, accumulate=True)
    scored[place] = True
    return value, scored


def as_logprobs(plan: Plan, value: Tensor, rows: int) -> Tensor:
    """(N,) log-probabilities whose token values are `value` (B, L): all of it where the response is fully masked."""
    first = plan.states.source < rows
    return torch.where(first, 2 * value[plan.states.row, plan.states.position], 0.0)


@pytest.mark.parametrize("key", STEPS)
def test_loss_and_gradients_are_the_authors(key: str) -> None:
    tensors, about = golden("loss/coupled_grpo")
    case, step = key.rsplit(".", 1)
    hyper, models, recorded = (about["cases"][f"{case}.{what}"] for what in ("hyper", "models", step))
    prompt_ids, response_ids, reward = tensors["prompt_ids"], tensors["completion_ids"], tensors["rewards"]
    rows, length = response_ids.shape
    model = recorded_model(models["current"])
    everyone = recorded_rollout(prompt_ids, response_ids)
    eps = 1e-4 if hyper.get("scale_rewards", True) else None
    advantage = leave_one_out_advantage(reward, everyone.group, eps)
    torch.testing.assert_close(advantage, tensors[f"{case}.advantages"], rtol=1e-4, atol=1e-5)
    trained = until_end(everyone, model.end_token_id)
    assert torch.equal(trained, tensors[f"{case}.completion_mask"].bool())

    algorithm = CoupledGRPO(
        CoupledGRPOSettings(advantage_eps=eps),
        ObjectiveSettings(
            clip_low=hyper["epsilon_low"], clip_high=hyper["epsilon_high"], kl_weight=hyper["beta"], kl_estimator="k3"
        ),
    )
    _, once, other = recorded["mask_call0.weights"]
    assert 1 / once + 1 / other == pytest.approx(1)

    def subset(call: str) -> Tensor:
        full, one, rest = (
            tensors[f"{case}.{call}.noisy_ids_{name}"][:, -length:] == model.mask_token_id
            for name in ("allmask", "p1", "p2")
        )
        assert full.all() and torch.equal(one, ~rest)
        return one

    def plan_of(chosen: slice, call: str) -> tuple[Rollout, Plan]:
        rollout = recorded_rollout(prompt_ids[chosen], response_ids[chosen])
        experience = recorded_experience(rollout, advantage[chosen])
        masked = subset(call)
        return rollout, algorithm.plan(
            experience, actor_of(model), masked, torch.full((len(masked),), 1 / once, dtype=torch.float64)
        )

    chosen = slice(*recorded["rows"])
    rollout, plan = plan_of(chosen, f"{step}.mask_call0")

    def before(which: str, offset: int) -> Tensor | None:
        """What `which` policy made of the tokens: the authors score whole batches, in masks of their own."""
        if f"{case}.{which}_per_token_logps" not in tensors:
            return None
        update = recorded["_step_at_loss"] % hyper["num_iterations"]
        whole, generation = plan_of(slice(None), f"gen_mask_call{offset + update}")
        logprob = replay_of(model, whole).score(generation.states, recorded_model(models[which]))
        value, scored = unit_values(generation, logprob, rows, length)
        kept = tensors[f"{case}.{which}_per_token_logps"][:, update]
        torch.testing.assert_close(value[scored], kept[scored], rtol=1e-4, atol=2e-4)
        return as_logprobs(plan, value[chosen], len(advantage[chosen]))

    check_update(
        replay_of(model, rollout),
        plan,
        recorded_gradients(tensors, key),
        loss=recorded["loss"],
        grad_norm=recorded["grad_norm"],
        old=before("old", 0),
        reference=before("ref", hyper["num_iterations"]),
        loss_tolerance=1e-5,  # relative, because the ratios here are very large
        relative_loss_tolerance=1e-3,
    )


def make_algorithm(kl_weight: float = 0.0) -> CoupledGRPO:
    return CoupledGRPO(CoupledGRPOSettings(group_size=4), ObjectiveSettings(kl_weight=kl_weight))


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


def test_every_token_up_to_the_end_is_scored_fully_masked_and_in_one_of_two_complements(make_model: Callable) -> None:
    model = make_model()
    actor = FixedActor(model, Decoding(length=6), parity_reward, end_token_id=3)
    algorithm = make_algorithm(0.1)
    experience = algorithm.collect(make_prompts(3, 5, 8), actor)
    trained = until_end(experience.rollout, 3)
    assert 0 < trained.sum() < trained.numel()
    for plan in algorithm.replay(experience, actor, 2):
        states, rows = plan.states, len(experience.reward)
        kind = states.source // rows
        for wanted in (kind == 0, kind > 0):
            times = torch.zeros_like(trained, dtype=torch.int64)
            times.index_put_((states.row[wanted], states.position[wanted]), torch.tensor(1), accumulate=True)
            assert torch.equal(times, trained.long())
        assert not states.visible[states.state[kind == 0]].any()
        assert isinstance(plan.objective, ClippedObjective)
        torch.testing.assert_close(
            plan.objective.credit.squeeze(-1), (experience.advantage / trained.sum())[trained], rtol=1e-12, atol=0
        )


def test_masks_depend_on_the_response_and_the_update_alone(make_model: Callable) -> None:
    algorithm = make_algorithm()
    key = torch.arange(1000)
    subset, ratio = algorithm.draw(key, 40)
    again, _ = algorithm.draw(key[17:20], 40)
    assert torch.equal(again, subset[17:20])
    assert ratio.min() >= 0.2 and ratio.max() <= 0.8 and ratio.min() < 0.21 and ratio.max() > 0.79
    # 40,000 draws of standard deviation at most 1/2: 0.02 is eight standard errors
    assert abs(subset.double().mean() - 0.5) < 0.02
    assert abs((subset.double().mean(-1) - ratio).mean()) < 0.02

    actor = FixedActor(make_model(), Decoding(length=12), parity_reward)
    experience = algorithm.collect(make_prompts(2, 5, 8), actor)
    one, other = algorithm.replay(experience, actor, 2)
    assert not torch.equal(one.states.visible, other.states.visible)
    (alone,) = algorithm.replay(experience, actor, 1)
    assert torch.equal(one.states.visible, alone.states.visible)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"masking_ratios=.0.8, 0.2.: must be .smallest, largest."):
        CoupledGRPOSettings(masking_ratios=(0.8, 0.2))
    with pytest.raises(ValueError, match=r"objective.mismatch=truncate: coupled_grpo"):
        CoupledGRPOSettings().check(Decoding(), ObjectiveSettings(mismatch="truncate"))
    with pytest.raises(ValueError, match=r"decoding.temperature=0: coupled_grpo"):
        CoupledGRPOSettings().check(Decoding(temperature=0), ObjectiveSettings())
