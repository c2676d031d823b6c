"""Diffu-GRPO against its authors' recorded losses, and the promises of its masks."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.algorithms.recorded import assert_gradients, recorded_batch, recorded_gradients, recorded_groups
from tests.golden_data import golden, golden_model
from tests.helpers import FixedActor, gradients, make_prompts, parity_reward
from unmask.algorithms import DiffuGRPO, DiffuGRPOSettings, Experience
from unmask.algorithms.algorithm import until_end
from unmask.algorithms.diffu_grpo import draw_visible_prompts
from unmask.credit import centered_advantage
from unmask.decoding import Decoding, Rollout
from unmask.models import load_model
from unmask.objectives import ObjectiveSettings
from unmask.replay import Replay

STATIC = Decoding(order="static", length=8, steps=4, block=4)
STEPS = sorted(case for case in golden("loss/diffu_grpo").about["cases"] if ".step" in case)


@pytest.mark.parametrize("step", STEPS)
def test_losses_and_gradients_are_the_authors(step: str) -> None:
    tensors, about = golden("loss/diffu_grpo")
    case = step.rsplit(".", 1)[0]
    options, models, here = (about["cases"][name] for name in (f"{case}.hyper", f"{case}.models", step))
    rows, number = slice(*here["rows"]), here["_step_at_loss"] % options["num_iterations"]
    policy, old, reference = (
        load_model(golden_model(models[which]), dtype="float32") for which in ("current", "old", "ref")
    )

    advantage = centered_advantage(tensors["rewards"], recorded_groups(tensors))
    torch.testing.assert_close(advantage, tensors[f"{case}.advantages"], rtol=1e-5, atol=1e-6)
    # the authors' model sees pads as ordinary tokens, and their masks cover them
    no_pads = torch.ones_like(tensors["prompt_ids"], dtype=torch.bool)
    experience = recorded_batch(tensors, advantage, advantage, rows, no_pads)
    scored = until_end(experience.rollout, policy.end_token_id)
    assert torch.equal(scored, tensors[f"{case}.completion_mask"][rows].bool())
    tokens = int(scored.sum())
    experience = replace(experience, credit=(advantage[rows].unsqueeze(-1) * scored / tokens).unsqueeze(-1))

    objective = ObjectiveSettings(
        clip_low=options["epsilon"], clip_high=options["epsilon"], kl_weight=options["beta"], kl_estimator="k3"
    )
    visible = tensors[f"{step}.mask_call0.noisy_ids"] != options["mask_id"]
    prompt_length = no_pads.shape[1]
    plan = DiffuGRPO(DiffuGRPOSettings(), objective).plan(experience, scored, tokens, visible[:, :prompt_length])
    assert not visible[:, prompt_length:].any()

    replay = Replay(policy, experience.rollout, temperature=1.0, batch_tokens=100)
    before = None
    if options["num_iterations"] > 1:  # with one the authors take the current policy for the old one
        before = replay.score(plan.states, old)
        recorded = tensors[f"{case}.old_per_token_logps"][number, rows][plan.states.row, plan.states.position]
        torch.testing.assert_close(before, recorded, rtol=1e-4, atol=1e-4)
    start = None
    if options["beta"]:
        start = replay.score(plan.states, reference)
        recorded = tensors[f"{case}.ref_per_token_logps"][number, rows][plan.states.row, plan.states.position]
        torch.testing.assert_close(start, recorded, rtol=1e-4, atol=1e-4)
    scores, loss = replay.accumulate(plan.states, plan.objective, old=before, reference=start)
    torch.testing.assert_close(float(loss), here["loss"], rtol=1e-4, atol=1e-5)
    assert_gradients(gradients(policy), recorded_gradients(tensors, step), here["grad_norm"])
    if "kl" in here["metrics"]:
        divergence = plan.objective.measure(scores)["kl"].mean()
        torch.testing.assert_close(float(divergence), here["metrics"]["kl"], rtol=1e-4, atol=1e-5)


def collected(make_model: Callable, judge: Callable[[Rollout], Tensor]) -> tuple[FixedActor, Experience]:
    actor = FixedActor(make_model(), STATIC, judge)
    algorithm = DiffuGRPO(DiffuGRPOSettings(group_size=4), ObjectiveSettings())
    return actor, algorithm.collect(make_prompts(3, 6, 8, pad=2), actor)


def test_equal_rewards_give_nothing_to_replay(make_model: Callable) -> None:
    actor, experience = collected(make_model, lambda rollout: torch.full((len(rollout.group),), 0.1))
    plans = DiffuGRPO(DiffuGRPOSettings(), ObjectiveSettings()).replay(experience, actor, 2)
    assert [len(plan.states) for plan in plans] == [0, 0]


def test_equal_rewards_give_exactly_zero_gradient_at_the_reference_policy(make_model: Callable) -> None:
    actor, experience = collected(make_model, lambda rollout: torch.full((len(rollout.group),), 0.1))
    (plan,) = DiffuGRPO(DiffuGRPOSettings(), ObjectiveSettings(kl_weight=0.04)).replay(experience, actor, 1)
    replay = Replay(actor.model, experience.rollout, temperature=1.0, batch_tokens=100)
    assert len(plan.states)
    replay.accumulate(plan.states, plan.objective, reference=replay.score(plan.states))
    assert all(not gradient.any() for gradient in gradients(actor.model).values())


def test_one_normaliser_for_tokens_and_divergence(make_model: Callable) -> None:
    actor, experience = collected(make_model, parity_reward)
    tokens = int(until_end(experience.rollout, actor.end_token_id).sum())
    torch.testing.assert_close(experience.credit.squeeze(-1) * tokens, experience.advantage)
    (plan,) = DiffuGRPO(DiffuGRPOSettings(), ObjectiveSettings(kl_weight=0.04)).replay(experience, actor, 1)
    assert plan.states.tokens == tokens
    kl_weight = plan.objective.kl_weight  # type: ignore[attr-defined]
    torch.testing.assert_close(kl_weight.sum(), torch.ones_like(kl_weight[0]))


def test_scoring_stops_after_the_first_end_token(make_model: Callable) -> None:
    actor, experience = collected(make_model, parity_reward)
    response_ids = torch.full_like(experience.rollout.response_ids, 3)
    response_ids[:, 2] = response_ids[:, 5] = actor.end_token_id
    experience = replace(experience, rollout=replace(experience.rollout, response_ids=response_ids))
    (plan,) = DiffuGRPO(DiffuGRPOSettings(), ObjectiveSettings(kl_weight=0.04)).replay(experience, actor, 1)
    assert set(plan.states.position.tolist()) == {0, 1, 2}
    assert not plan.states.visible.any()


def test_each_update_has_a_mask_of_its_own_and_pads_are_never_masked(make_model: Callable) -> None:
    _, experience = collected(make_model, parity_reward)
    visible = draw_visible_prompts(experience, 0.5, 3)
    assert len({tuple(mask.flatten().tolist()) for mask in visible}) == 3
    for mask in visible:
        assert mask[~experience.rollout.prompt_mask].all()
    assert all(mask.all() for mask in draw_visible_prompts(experience, 0.0, 2))
    assert torch.equal(draw_visible_prompts(experience, 1.0, 1)[0], ~experience.rollout.prompt_mask)


def test_masks_depend_on_the_key_and_on_nothing_else(make_model: Callable) -> None:
    _, experience = collected(make_model, parity_reward)
    first, second = draw_visible_prompts(experience, 0.5, 2)
    torch.manual_seed(1)
    again = draw_visible_prompts(experience, 0.5, 3)
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    # another worker, with fewer rows, padded further
    rollout, part = experience.rollout, slice(2, 7)
    moved = replace(
        experience,
        key=experience.key[part],
        rollout=replace(rollout, prompt_mask=torch.cat([torch.zeros(5, 2).bool(), rollout.prompt_mask[part]], dim=-1)),
    )
    assert torch.equal(draw_visible_prompts(moved, 0.5, 1)[0][:, 2:], first[part])


def test_the_share_of_masked_prompt_tokens_is_the_probability() -> None:
    ids, zeros = torch.ones(400, 50, dtype=torch.int64), torch.zeros(400)
    tensors = {"prompt_ids": ids, "completion_ids": ids, "rewards": zeros}
    experience = recorded_batch(tensors, zeros, zeros, slice(None), ids.bool())
    (visible,) = draw_visible_prompts(experience, 0.15, 1)
    # 20,000 fixed draws: standard deviation 0.0025
    assert float((~visible).double().mean()) == pytest.approx(0.15, abs=0.01)


def test_importance_weights_are_refused() -> None:
    with pytest.raises(ValueError, match=r"set objective\.mismatch=none"):
        DiffuGRPOSettings().check(STATIC, ObjectiveSettings(mismatch="truncate"))
