"""wd1 against its authors' recorded losses, and what its weights promise."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.algorithms.recorded import assert_gradients, recorded_batch, recorded_gradients, recorded_groups
from tests.golden_data import golden, golden_model
from tests.helpers import FixedActor, gradients, make_prompts, parity_reward
from unmask.algorithms import WD1, Experience, SPGSettings, WD1Settings
from unmask.algorithms.algorithm import until_end
from unmask.credit import centered_advantage
from unmask.decoding import Decoding, Rollout
from unmask.models import load_model
from unmask.objectives import ObjectiveSettings
from unmask.replay import Replay

STATIC = Decoding(order="static", length=8, steps=4, block=4)
STEPS = sorted(case for case in golden("loss/wd1").about["cases"] if ".step" in case)
NEGATIVE_WEIGHT = {"neg_and_pos": 1.0, "pos_only": 0.0}
"""What the recorded cases are here, by the start of their names."""


@pytest.mark.parametrize("step", STEPS)
def test_losses_and_gradients_are_the_authors(step: str, make_model: Callable) -> None:
    tensors, about = golden("loss/wd1")
    case = step.rsplit(".", 1)[0]
    options, here = about["cases"][f"{case}.hyper"], about["cases"][step]
    rows = slice(*here["rows"])
    policy = load_model(golden_model(about["cases"][f"{case}.models"]["current"]), dtype="float32")
    (negative_weight,) = (weight for name, weight in NEGATIVE_WEIGHT.items() if case.startswith(name))

    advantage = centered_advantage(tensors["rewards"], recorded_groups(tensors))
    torch.testing.assert_close(advantage, tensors[f"{case}.advantages"], rtol=1e-5, atol=1e-6)
    algorithm = WD1(WD1Settings(negative_weight=negative_weight), ObjectiveSettings())
    # the authors' softmax runs over the rows of this micro-batch
    actor = FixedActor(policy, STATIC, parity_reward, end_token_id=policy.end_token_id)
    credit = algorithm.credit(advantage[rows], actor)
    # their model sees pads as ordinary tokens, and their masks cover them
    no_pads = torch.ones_like(tensors["prompt_ids"], dtype=torch.bool)
    experience = recorded_batch(tensors, advantage, advantage, rows, no_pads)
    experience = replace(experience, credit=credit)
    scored = until_end(experience.rollout, policy.end_token_id)
    assert torch.equal(scored, tensors[f"{case}.completion_mask"][rows].bool())

    visible = tensors[f"{step}.mask_call0.noisy_ids"] != options["mask_id"]
    assert not visible[:, no_pads.shape[1] :].any()
    plan = algorithm.plan(experience, scored, visible[:, : no_pads.shape[1]])
    replay = Replay(policy, experience.rollout, temperature=1.0, batch_tokens=100)
    _, loss = replay.accumulate(plan.states, plan.objective)
    torch.testing.assert_close(float(loss), here["loss"], rtol=1e-4, atol=1e-5)
    assert_gradients(gradients(policy), recorded_gradients(tensors, step), here["grad_norm"])


def collected(
    make_model: Callable, judge: Callable[[Rollout], Tensor], negative_weight: float = 1.0
) -> tuple[WD1, FixedActor, Experience]:
    actor = FixedActor(make_model(), STATIC, judge)
    algorithm = WD1(WD1Settings(group_size=4, negative_weight=negative_weight), ObjectiveSettings())
    return algorithm, actor, algorithm.collect(make_prompts(3, 6, 8, pad=2), actor)


def test_equal_rewards_give_exactly_zero_credit_and_nothing_to_replay(make_model: Callable) -> None:
    def judge(rollout: Rollout) -> Tensor:  # equal within each group
        return rollout.prompt * 0.1

    algorithm, actor, experience = collected(make_model, judge)
    assert not experience.credit.any()
    assert [len(plan.states) for plan in algorithm.replay(experience, actor, 2)] == [0, 0]


def test_weights_are_two_softmaxes_over_all_responses(make_model: Callable) -> None:
    _, _, both = collected(make_model, parity_reward)
    _, _, positive = collected(make_model, parity_reward, negative_weight=0.0)
    advantage = centered_advantage(parity_reward(both.rollout), both.rollout.group).to(both.credit.dtype)
    assert advantage.any()
    torch.testing.assert_close(positive.credit, advantage.softmax(0))
    torch.testing.assert_close(both.credit, advantage.softmax(0) - (-advantage).softmax(0))


def test_large_rewards_do_not_overflow(make_model: Callable) -> None:
    _, _, experience = collected(make_model, lambda rollout: 600 * parity_reward(rollout))
    assert experience.credit.isfinite().all() and experience.credit.any()


def test_each_update_has_states_of_its_own_that_stop_at_the_first_end_token(make_model: Callable) -> None:
    algorithm, actor, experience = collected(make_model, parity_reward)
    response_ids = torch.full_like(experience.rollout.response_ids, 3)
    response_ids[:, 2] = actor.end_token_id
    experience = replace(experience, rollout=replace(experience.rollout, response_ids=response_ids))
    first, second = (plan.states for plan in algorithm.replay(experience, actor, 2))
    for states in (first, second):
        assert set(states.position.tolist()) == {0, 1, 2}
        assert not states.visible.any()
        assert states.prompt_visible is not None
    assert not torch.equal(first.prompt_visible, second.prompt_visible)  # type: ignore[arg-type]


def test_a_divergence_is_refused() -> None:
    with pytest.raises(ValueError, match="wd1 has no KL term"):
        WD1Settings().check(STATIC, ObjectiveSettings(kl_weight=0.1))


@pytest.mark.parametrize("settings", [WD1Settings(), SPGSettings(block=4, draws=2)])
def test_a_clip_that_would_do_nothing_is_refused(settings: WD1Settings | SPGSettings) -> None:
    settings.check(STATIC, ObjectiveSettings(clip_low=0.2))
    with pytest.raises(ValueError, match=rf"objective.clip_high=0.3: {settings.name} has no ratio to clip"):
        settings.check(STATIC, ObjectiveSettings(clip_high=0.3))
