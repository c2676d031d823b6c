import re
from collections.abc import Callable

import pytest
import torch

from tests.golden_data import golden, golden_model
from tests.helpers import FixedActor, gradients, make_prompts, parity_reward, policy_gradient
from unmask.algorithms import JustGRPO, JustGRPOSettings
from unmask.algorithms.algorithm import spread
from unmask.credit import group_advantage
from unmask.decoding import Decoding, Rollout
from unmask.models import load_model
from unmask.objectives import ObjectiveSettings
from unmask.replay import Replay, reveal_states


def test_normaliser_counts_responses_with_credit_over_all_prompts(make_model: Callable) -> None:
    def judge(rollout: Rollout) -> torch.Tensor:
        return torch.where(rollout.prompt == 0, 1.0, parity_reward(rollout))  # prompt 0 has no variation

    actor = FixedActor(make_model(), Decoding(length=6), judge)
    experience = JustGRPO(JustGRPOSettings(group_size=4), ObjectiveSettings()).collect(make_prompts(3, 5, 8), actor)
    valid = int((experience.advantage[:, 0] != 0).sum())
    assert 0 < valid <= 8
    torch.testing.assert_close(experience.credit.squeeze(-1), experience.advantage / (6 * valid))


def test_equal_rewards_give_exactly_zero_gradient_and_nothing_to_replay(make_model: Callable) -> None:
    model = make_model()
    actor = FixedActor(model, Decoding(length=6), lambda rollout: torch.full((len(rollout.group),), 0.1))
    algorithm = JustGRPO(JustGRPOSettings(group_size=4), ObjectiveSettings())
    experience = algorithm.collect(make_prompts(3, 5, 8), actor)
    (plan,) = algorithm.replay(experience, actor, 1)
    assert len(plan.states) == 0
    Replay(model, experience.rollout, temperature=1.0, batch_tokens=100).accumulate(plan.states, plan.objective)
    assert gradients(model) == {}


@pytest.mark.parametrize(
    "case", sorted(c for c, v in golden("loss/justgrpo").about["cases"].items() if isinstance(v, dict))
)
def test_log_probabilities_and_gradients_are_the_authors(case: str) -> None:
    tensors, about = golden("loss/justgrpo")
    settings = about["cases"][case]
    model = load_model(golden_model(settings["model"]), dtype="float32")
    length, prompt_length = settings["gen_length"], settings["prompt_len"]
    ids, reward = tensors[f"{case}.generated_ids"], tensors[f"{case}.rewards"]
    rows = len(ids)
    rollout = Rollout(
        prompt_ids=ids[:, :prompt_length],
        prompt_mask=torch.ones(rows, prompt_length, dtype=torch.bool),
        response_ids=ids[:, prompt_length:],
        trainable=torch.ones(rows, length, dtype=torch.bool),
        reveal_step=torch.arange(length).expand(rows, length),
        logprob=torch.zeros(rows, length),
        entropy=torch.zeros(rows, length),
        prompt=torch.zeros(rows, dtype=torch.int64),
        group=torch.zeros(rows, dtype=torch.int64),
        row_forwards=0,
    )
    advantage = group_advantage(reward, rollout.group)
    torch.testing.assert_close(advantage, tensors[f"{case}.advantages"], rtol=1e-4, atol=1e-5)

    everything = reveal_states(rollout, torch.ones(rows, length, dtype=torch.bool))
    replay = Replay(model, rollout, temperature=settings["temperature"], batch_tokens=100)
    logprob = torch.zeros(rows, length)
    logprob[everything.row, everything.position] = replay.score(everything)
    torch.testing.assert_close(logprob, tensors[f"{case}.token_logps"], rtol=1e-4, atol=1e-4)

    valid = int((advantage != 0).sum())
    assert valid == settings["valid_samples_returned"]
    # the authors divide by the valid count plus 1e-5
    credit = settings["gain"] * spread(advantage, rollout).unsqueeze(-1) / (length * (valid + 1e-5))
    found = policy_gradient(model, rollout, credit, batch_tokens=100, temperature=settings["temperature"])
    norm = torch.stack([gradient.square().sum() for gradient in found.values()]).sum().sqrt() if found else 0.0
    assert float(norm) == pytest.approx(settings["grad_norm"], rel=1e-3)
    for key in (key for key in tensors if key.startswith(f"{case}.grad:")):
        recorded = tensors[key]
        gradient = found.get(key.split(":", 1)[1], torch.zeros_like(recorded))
        torch.testing.assert_close(gradient, recorded, rtol=1e-3, atol=1e-3 * float(recorded.abs().max()) + 1e-8)


def test_advantages_are_the_authors_in_their_generation_major_layout() -> None:
    tensors, about = golden("loss/justgrpo")
    reward = tensors["advantage_layout.rewards"]
    size = int(re.search(r"group_size=(\d+)", about["cases"]["advantage_layout"]).group(1))  # type: ignore[union-attr]
    group = torch.arange(len(reward)) % (len(reward) // size)
    recorded = tensors[f"advantage_layout.advantages_group{size}"]
    torch.testing.assert_close(group_advantage(reward, group), recorded, rtol=1e-4, atol=1e-5)
