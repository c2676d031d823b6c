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
from unmask.algorithms import TraceRL, TraceRLSettings
from unmask.credit import floored_advantage
from unmask.decoding import Decoding, Rollout
from unmask.models import Denoiser
from unmask.objectives import ObjectiveSettings
from unmask.replay import Replay

FILES = ("tracerl_llada", "tracerl_dream")
CASES = [
    (file, case)
    for file in FILES
    for case, about in sorted(golden(f"loss/{file}").about["cases"].items())
    if isinstance(about, dict)
]


def ranks(step: Tensor) -> Tensor:
    """(B, L) steps counted without gaps, as our rollouts have them."""
    return torch.stack([torch.unique(row, return_inverse=True)[1] for row in step])


def hide_first_padding(model: Denoiser, length: int) -> Denoiser:
    """For Dream the authors hide padding up to and with a response's first position, if it is the padding token."""
    forward = model.forward

    def hiding(input_ids: Tensor, attention_mask: Tensor | None = None, **options: object) -> object:
        attention = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.clone()
        first = input_ids.shape[1] - length
        attention[:, first] &= input_ids[:, first] != model.pad_token_id
        return forward(input_ids, attention, **options)  # type: ignore[arg-type]

    model.forward = hiding  # type: ignore[method-assign, assignment]
    return model


@pytest.mark.parametrize(("file", "case"), CASES)
def test_states_loss_and_gradients_are_the_authors(file: str, case: str) -> None:
    tensors, about = golden(f"loss/{file}")
    settings, models = about["cases"][case], about["models"]
    current, old = recorded_model(models["current"]), recorded_model(models["old"])
    prompt_length = settings["start_pos"]
    prompt_ids, response_ids = tensors["input_ids"].tensor_split([prompt_length], dim=1)
    length = response_ids.shape[1]
    is_dream = current.family == "dream"
    if is_dream:
        current, old = hide_first_padding(current, length), hide_first_padding(old, length)
    rollout = recorded_rollout(
        prompt_ids,
        response_ids,
        prompt_mask=prompt_ids != current.pad_token_id if is_dream else None,
        reveal_step=ranks(tensors["step_map"]),
    )
    advantage = floored_advantage(tensors["correct"].float(), rollout.group, 0.0, ddof=0)
    torch.testing.assert_close(advantage, tensors["reward_zscore"], rtol=1e-4, atol=1e-5)

    algorithm = TraceRL(
        TraceRLSettings(shrink=settings["shrink"], end_tokens=settings["post_num"]),
        ObjectiveSettings(
            clip_low=settings["eps"],
            clip_high=settings["eps"],
            kl_weight=settings["beta"],
            kl_estimator="k3" if settings["use_kl_estimator_k3"] else "k1",
            reference="rollout",
        ),
    )
    noisy_ids, scored = tensors[f"{case}.noisy_ids"], tensors[f"{case}.p_mask"].bool()[:, prompt_length:]
    masked = noisy_ids[:, prompt_length:] == current.mask_token_id
    assert not tensors[f"{case}.p_mask"][:, :prompt_length].any()
    if settings["method"] == "TraceRL":
        response, visible, chosen = algorithm.slices(rollout, settings["pad_id"])
        assert torch.equal(visible, ~masked) and torch.equal(chosen, scored)
    else:  # random masks, with the response that each belongs to kept whole
        whole = tensors[f"{case}.labels"].unsqueeze(1) == tensors["input_ids"]  # (A, B, T)
        response = (whole.all(-1) & (tensors[f"{case}.adv"].unsqueeze(1) == tensors["reward_zscore"])).int().argmax(-1)
    shown = torch.where(masked, response_ids[response], noisy_ids[:, prompt_length:])
    assert torch.equal(shown, response_ids[response])
    torch.testing.assert_close(advantage[response], tensors[f"{case}.adv"], rtol=1e-4, atol=1e-5)

    plan = algorithm.plan(recorded_experience(rollout, advantage), actor_of(current), response, ~masked, scored)
    replay = replay_of(current, rollout)
    logprob = replay.score(plan.states, old)
    column = prompt_length + plan.states.position - (1 if is_dream else 0)  # Dream's are kept at the logits' places
    # where states were merged the authors have a row for each
    torch.testing.assert_close(logprob, tensors[f"{case}.logp_old"][plan.states.source, column], rtol=1e-4, atol=1e-4)
    check_update(
        replay,
        plan,
        recorded_gradients(tensors, case),
        loss=settings["loss"],
        grad_norm=settings["grad_norm"],
        old=logprob,
    )


def make_algorithm(shrink: int = 1, end_tokens: int | None = None, **objective: object) -> TraceRL:
    settings = TraceRLSettings(group_size=4, shrink=shrink, end_tokens=end_tokens)
    return TraceRL(settings, ObjectiveSettings.model_validate(objective))


DYNAMIC = Decoding(order="dynamic", length=6, block=3, threshold=0.5)


def test_equal_rewards_give_exactly_zero_policy_gradient(make_model: Callable) -> None:
    model = make_model()
    actor = FixedActor(model, DYNAMIC, lambda rollout: torch.full((len(rollout.group),), 0.1))
    for kl_weight in (0.0, 0.1):
        # in a first update the policy that sampled is the policy: also the divergence is flat
        algorithm = make_algorithm(kl_weight=kl_weight, reference="rollout")
        experience = algorithm.collect(make_prompts(3, 5, 8), actor)
        (plan,) = algorithm.replay(experience, actor, 1)
        assert (len(plan.states) > 0) == (kl_weight > 0)  # without a divergence there is nothing to replay
        replay = Replay(model, experience.rollout, temperature=1.0, batch_tokens=100)
        _, loss = replay.accumulate(plan.states, plan.objective)
        assert loss == 0 and all((gradient == 0).all() for gradient in gradients(model).values())


def trace(steps: list[list[int]], tokens: list[list[int]] | None = None) -> Rollout:
    step = torch.tensor(steps)
    response_ids = torch.full_like(step, 2) if tokens is None else torch.tensor(tokens)
    return recorded_rollout(torch.arange(len(step)).unsqueeze(-1), response_ids, reveal_step=step)


@pytest.mark.parametrize(
    ("shrink", "wanted"),
    [
        (1, [(0, "____", "1001"), (0, "x__x", "0010"), (0, "x_xx", "0100"), (1, "____", "1111")]),
        (2, [(0, "____", "1011"), (0, "x_xx", "0100"), (1, "____", "1111")]),
        (99, [(0, "____", "1111"), (1, "____", "1111")]),
    ],
)
def test_slices_are_scored_in_the_state_before_their_first_step(
    shrink: int, wanted: list[tuple[int, str, str]]
) -> None:
    rollout = trace([[0, 2, 1, 0], [0, 0, 0, 0]])
    response, visible, scored = make_algorithm(shrink).slices(rollout, end_token_id=0)
    found = [
        (int(row), "".join("x" if shown else "_" for shown in v), "".join(str(int(x)) for x in s))
        for row, v, s in zip(response, visible, scored, strict=True)
    ]
    assert found == wanted


@pytest.mark.parametrize(("end_tokens", "wanted"), [(None, [1, 1, 1, 1]), (1, [1, 1, 0, 0]), (0, [1, 0, 0, 0])])
def test_only_the_first_end_tokens_are_trained_on_but_all_are_masked(end_tokens: int | None, wanted: list[int]) -> None:
    rollout = trace([[0, 0, 1, 2]], [[2, 0, 0, 0]])
    _, visible, scored = make_algorithm(shrink=1, end_tokens=end_tokens).slices(rollout, end_token_id=0)
    assert scored.any(0).long().tolist() == wanted
    assert not visible[0].any()


def test_normaliser_is_the_mean_over_states_of_the_mean_over_their_tokens(make_model: Callable) -> None:
    actor = FixedActor(make_model(), DYNAMIC, parity_reward)
    algorithm = make_algorithm(shrink=2, kl_weight=0.1)
    experience = algorithm.collect(make_prompts(3, 5, 8), actor)
    (plan,) = algorithm.replay(experience, actor, 1)
    response, _, scored = algorithm.slices(experience.rollout, 0)
    states, objective = plan.states, plan.objective
    expected = experience.reward.new_zeros(len(response))
    expected = expected.index_add(0, states.source, objective.credit.squeeze(-1))  # type: ignore[attr-defined]
    torch.testing.assert_close(expected, experience.credit[response] / len(response))
    torch.testing.assert_close(
        objective.kl_weight,  # type: ignore[attr-defined]
        torch.full((int(scored.sum()),), 1 / len(response), dtype=torch.float64),
    )


def test_tokens_can_be_weighed_against_their_sampling_when_each_has_its_own_state(make_model: Callable) -> None:
    model = make_model()
    actor = FixedActor(model, DYNAMIC, parity_reward)
    for shrink in (1, 3):
        algorithm = make_algorithm(shrink=shrink, mismatch="truncate", kl_weight=0.1)
        experience = algorithm.collect(make_prompts(3, 5, 8), actor)
        (plan,) = algorithm.replay(experience, actor, 1)
        assert bool(plan.states.is_revealed.all()) == (shrink == 1)
        replay = Replay(model, experience.rollout, temperature=1.0, batch_tokens=100)
        scores, _ = replay.accumulate(plan.states, plan.objective)
        own = plan.states.is_revealed
        torch.testing.assert_close(scores.logprob[own], scores.sampled[own], rtol=0, atol=1e-10)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"decoding.temperature=0: tracerl"):
        TraceRLSettings().check(Decoding(temperature=0), ObjectiveSettings())
    TraceRLSettings().check(DYNAMIC, ObjectiveSettings(mismatch="truncate"))
