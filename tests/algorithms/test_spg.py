"""SPG against its authors' recorded losses, its bounds against a plain computation, and the promises of its masks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.algorithms.recorded import assert_gradients, recorded_batch, recorded_gradients, recorded_groups
from tests.golden_data import golden, golden_model
from tests.helpers import FixedActor, gradients, make_prompts, parity_reward
from unmask.algorithms import SPG, Experience, SPGSettings
from unmask.algorithms.algorithm import until_end
from unmask.algorithms.spg import SandwichedObjective
from unmask.credit import centered_advantage
from unmask.decoding import Decoding, Rollout
from unmask.models import load_model
from unmask.objectives import ObjectiveSettings
from unmask.replay import Replay, masking_keys

STATIC = Decoding(order="static", length=8, steps=4, block=4)
CASES = sorted(case for case, about in golden("loss/spg").about["cases"].items() if isinstance(about, dict))


def bounds(options: dict[str, Any]) -> dict[str, float]:
    """The authors' four estimators for bad responses, in our settings."""
    weight = {"mix": options["mix_weight"], "eubo": 1.0, "elbo": 0.0, "zero": 0.0}[options["logp_estimation"]]
    return {"eubo_weight": weight, "negative_weight": float(options["logp_estimation"] != "zero")}


@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_are_the_authors(case: str) -> None:
    tensors, about = golden("loss/spg")
    here = about["cases"][case]
    options = here["hyper"]
    policy = load_model(golden_model(here["model"].split()[0]), dtype="float32")
    settings = SPGSettings(eubo_power=options["eubo_beta"], **bounds(options))

    advantage = centered_advantage(tensors["rewards"], recorded_groups(tensors))
    torch.testing.assert_close(advantage, tensors["advantages"], rtol=1e-5, atol=1e-6)
    scored = tensors["completion_mask"].bool()
    length = scored.sum(-1)
    credit = advantage * length / length.sum()
    credit = torch.where(credit < 0, settings.negative_weight * credit, credit)
    prompt_mask = tensors["prompt_mask"].bool()
    if case.startswith("mask_ignored"):  # a model that takes pads for ordinary tokens
        prompt_mask = torch.ones_like(prompt_mask)
    experience = recorded_batch(tensors, advantage, credit, slice(None), prompt_mask)
    assert torch.equal(scored, until_end(experience.rollout, policy.end_token_id))

    visible = (tensors[f"{case}.noisy_ids"] != options["mask_id"]).flatten(0, 1)  # (B·T, P + L)
    prompt_visible, response_visible = visible.split([prompt_mask.shape[1], scored.shape[1]], dim=-1)
    plan = SPG(settings, ObjectiveSettings()).plan(experience, scored, ~response_visible, prompt_visible)
    replay = Replay(policy, experience.rollout, temperature=1.0, batch_tokens=100)
    scores, loss = replay.accumulate(plan.states, plan.objective)
    torch.testing.assert_close(float(loss), here["loss"], rtol=1e-4, atol=1e-5)
    assert_gradients(gradients(policy), recorded_gradients(tensors, case), here["grad_norm"])

    assert isinstance(plan.objective, SandwichedObjective)
    replayed = credit != 0
    recorded = tensors[f"{case}.per_seq_logps"][0]
    torch.testing.assert_close(plan.objective.bound(scores.logprob)[replayed], recorded[replayed], rtol=1e-4, atol=1e-4)


def collected(
    make_model: Callable, judge: Callable[[Rollout], Tensor] = parity_reward, **settings: Any
) -> tuple[SPG, FixedActor, Experience]:
    actor = FixedActor(make_model(), STATIC, judge)
    algorithm = SPG(SPGSettings(**{"group_size": 4, "block": 4, **settings}), ObjectiveSettings())
    return algorithm, actor, algorithm.collect(make_prompts(3, 6, 8, pad=2), actor)


def ending_at(experience: Experience, position: int, end_token_id: int) -> Experience:
    """With responses whose first end token is at `position`."""
    response_ids = torch.full_like(experience.rollout.response_ids, 3)
    response_ids[:, position] = end_token_id
    return replace(experience, rollout=replace(experience.rollout, response_ids=response_ids))


def many_masks(algorithm: SPG, experience: Experience, scored: Tensor) -> tuple[Tensor, Tensor]:
    """The masks of ten updates with two draws each."""
    keys = masking_keys(experience.key, 20)
    masked, prompt_visible = zip(*(algorithm.masks(experience, scored, pair) for pair in keys.split(2, 1)), strict=True)
    return torch.cat(masked), torch.cat(prompt_visible)


def test_equal_rewards_give_exactly_zero_gradient_and_nothing_to_replay(make_model: Callable) -> None:
    algorithm, actor, experience = collected(make_model, lambda rollout: torch.full((len(rollout.group),), 0.1))
    (plan,) = algorithm.replay(experience, actor, 1)
    assert len(plan.states) == 0
    replay = Replay(actor.model, experience.rollout, temperature=1.0, batch_tokens=100)
    _, loss = replay.accumulate(plan.states, plan.objective)  # as a worker without credit among others does
    assert float(loss) == 0 and gradients(actor.model) == {}


def test_without_negative_weight_only_good_responses_are_replayed(make_model: Callable) -> None:
    algorithm, actor, experience = collected(make_model, negative_weight=0.0)
    (plan,) = algorithm.replay(experience, actor, 1)
    assert plan.states.tokens and (experience.credit[plan.states.row] > 0).all()


def test_bounds_are_those_of_a_plain_computation(make_model: Callable) -> None:
    algorithm, actor, experience = collected(make_model, draws=2, eubo_power=1.5, eubo_weight=0.3)
    (plan,) = algorithm.replay(experience, actor, 1)
    objective, states = plan.objective, plan.states
    assert isinstance(objective, SandwichedObjective)
    logprob = -torch.rand(states.tokens, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = objective.bound(logprob)
    for row in range(len(found)):
        draws: list[dict[int, float]] = [{}, {}]
        for number in (states.row == row).nonzero().flatten().tolist():
            draws[int(states.source[number]) % 2][int(states.position[number])] = float(logprob[number])
        if not draws[0]:
            assert experience.credit[row] == 0 and found[row] == 0
            continue
        elbo = sum(sum(draw.values()) / len(draw) for draw in draws) / 2
        places = sorted({place for draw in draws for place in draw})
        length = int(objective.length[row])
        powers = [
            sum(torch.tensor(draw[i] * 1.5).exp() * length / len(draw) for draw in draws if i in draw) / 2
            for i in places
        ]
        eubo = float(torch.stack(powers).log().mean()) / 1.5  # type: ignore[arg-type]
        expected = elbo if experience.credit[row] > 0 else 0.3 * eubo + 0.7 * elbo
        assert float(found[row]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("masking", ["all", "random", "block_all", "block_random"])
def test_a_mask_hides_what_its_name_says(masking: str, make_model: Callable) -> None:
    algorithm, actor, experience = collected(make_model, masking=masking, context_mask_probability=0.0)
    experience = ending_at(experience, 5, actor.end_token_id)
    scored = until_end(experience.rollout, actor.end_token_id)
    masked, prompt_visible = many_masks(algorithm, experience, scored)
    assert prompt_visible.all()
    assert masked[:, 6:].all()  # what follows the end token
    seen = {tuple(row) for row in masked[:, :6].int().tolist()}
    if masking == "all":
        assert seen == {(1,) * 6}
    elif masking == "block_all":
        assert seen == {(1,) * 6, (0,) * 4 + (1, 1)}
    elif masking == "random":
        # 240 draws: each of the six sizes is missed with probability (5/6)^240 < 1e-18
        assert {sum(row) for row in seen} == {1, 2, 3, 4, 5, 6}
    else:
        # in block 0 any subset but none, with all behind it; in block 1, of which two tokens are left, the same
        assert {sum(row[:4]) for row in seen if row[4:] == (1, 1) and sum(row[:4])} == {1, 2, 3, 4}
        assert {row[4:] for row in seen if not sum(row[:4])} == {(0, 1), (1, 0), (1, 1)}


def test_context_masks_spare_pads_and_leave_blocks_alone(make_model: Callable) -> None:
    algorithm, _, experience = collected(make_model, masking="block_random", context_mask_probability=1.0)
    scored = torch.ones_like(experience.rollout.trainable)
    masked, prompt_visible = many_masks(algorithm, experience, scored)
    assert torch.equal(prompt_visible, ~experience.rollout.prompt_mask.repeat_interleave(2, dim=0).repeat(10, 1))
    # a block of 4 is left partly visible only where it was drawn; what lies before and behind is masked
    blocks = masked.view(-1, 2, 4).all(-1)
    assert blocks.any(-1).all() and not blocks.all()


def test_draws_of_one_update_are_of_different_blocks(make_model: Callable) -> None:
    algorithm, _, experience = collected(make_model, masking="block_all", context_mask_probability=0.0)
    scored = torch.ones_like(experience.rollout.trainable)
    masked, _ = algorithm.masks(experience, scored, masking_keys(experience.key, 2))
    assert (masked.sum(-1).view(-1, 2).sort(-1).values == torch.tensor([4, 8])).all()


def test_masks_depend_on_the_key_and_differ_between_updates(make_model: Callable) -> None:
    algorithm, actor, experience = collected(make_model, context_mask_probability=0.5)
    first, second = (plan.states for plan in algorithm.replay(experience, actor, 2))
    assert not (first.visible.shape == second.visible.shape and torch.equal(first.visible, second.visible))
    torch.manual_seed(1)
    (again,) = (plan.states for plan in algorithm.replay(experience, actor, 1))
    assert torch.equal(first.visible, again.visible)
    # another worker, with fewer rows, padded further
    rollout, part = experience.rollout, slice(2, 7)
    rows = {name: getattr(rollout, name)[part] for name in ("prompt_ids", "prompt_mask", "response_ids", "trainable")}
    for name in ("prompt_ids", "prompt_mask"):
        rows[name] = torch.cat([rows[name].new_zeros(5, 2), rows[name]], dim=-1)
    moved = replace(experience, key=experience.key[part], rollout=replace(rollout, **rows))
    scored = until_end(rollout, actor.end_token_id)
    masked, prompt_visible = algorithm.masks(experience, scored, masking_keys(experience.key, 2))
    moved_masked, moved_visible = algorithm.masks(moved, scored[part], masking_keys(moved.key, 2))
    assert torch.equal(moved_masked, masked[4:14]) and torch.equal(moved_visible[:, 2:], prompt_visible[4:14])


def test_scoring_stops_after_the_first_end_token(make_model: Callable) -> None:
    algorithm, actor, experience = collected(make_model, masking="all")
    experience = ending_at(experience, 2, actor.end_token_id)
    (plan,) = algorithm.replay(experience, actor, 1)
    assert set(plan.states.position.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"block": 3}, "algorithm.block=3 does not divide decoding.length=8"),
        ({"block": 8}, "algorithm.draws=2: each draw masks another block, and decoding.length=8 has 1 of 8 tokens"),
    ],
)
def test_blocks_that_do_not_fit_are_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as error:
        SPGSettings(**settings).check(STATIC, ObjectiveSettings())
    assert says in str(error.value)
    SPGSettings(masking="random", **settings).check(STATIC, ObjectiveSettings())
