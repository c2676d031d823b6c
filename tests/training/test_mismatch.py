"""What replay and sampling say of the same tokens: equal without a cache, measured and corrected with one.

And runs that keep a reference policy, and forks over any order.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import Scores, States
from unmask.runs import Result, resume, train

SMALL = [
    "trainer.prompts_per_step=4",
    "trainer.checkpoint_every=1",
    "evaluation.every=0",
    "algorithm.group_size=4",
]
BLOCKS = ["decoding.block=4", "decoding.threshold=0.9"]


def run(recipe: str, folder: Path, *overrides: str) -> Result:
    return train(recipe, [*SMALL, *overrides, f"run.dir={folder}"])


@pytest.mark.parametrize("recipe", ["tiny/rldf", "tiny/tracerl", "tiny/forkgrpo_anyorder"])
def test_without_a_cache_replay_is_the_rollout_and_with_one_the_difference_is_reported(
    recipe: str, tmp_path: Path
) -> None:
    exact = run(recipe, tmp_path / "exact", *BLOCKS, "trainer.steps=1").metrics[0]
    assert exact["policy/mismatch"] < 1e-5
    assert exact["policy/effective_sample_size"] == pytest.approx(1, abs=1e-5)
    assert exact["tokens/replayed"] > 0
    cached = run(recipe, tmp_path / "cached", *BLOCKS, "decoding.cache=prefix", "trainer.steps=1").metrics[0]
    assert cached["policy/mismatch"] > 1e-3
    assert 0 < cached["policy/effective_sample_size"] < 1 - 1e-4


def test_truncated_weights_change_the_update(tmp_path: Path) -> None:
    options = [*BLOCKS, "decoding.cache=prefix", "decoding.horizon=0", "trainer.steps=1", "trainer.prompts_per_step=16"]
    plain = run("tiny/tracerl", tmp_path / "plain", *options).metrics[0]
    weighted = run("tiny/tracerl", tmp_path / "weighted", *options, "objective.mismatch=truncate").metrics[0]
    assert weighted["policy/mismatch"] == plain["policy/mismatch"]
    assert weighted["policy/effective_sample_size"] >= plain["policy/effective_sample_size"]
    assert weighted["grad_norm"] != plain["grad_norm"]


def test_the_weights_are_the_ratios_up_to_two_where_the_rollout_revealed_the_token() -> None:
    logprob = torch.tensor([-1.0, -1.0, -1.0, -1.0], dtype=torch.float64, requires_grad=True)
    sampled = torch.tensor([-1.5, -3.0, -0.2, -3.0], dtype=torch.float64)
    revealed = torch.tensor([True, True, True, False])
    nothing = torch.zeros(4, dtype=torch.int64)
    states = States(nothing, nothing, None, nothing, nothing, nothing, nothing, revealed, 4)
    credit = torch.ones(4, 1, dtype=torch.float64)
    objective = ClippedObjective(states, ObjectiveSettings(mismatch="truncate"), credit)
    scores = Scores(torch.arange(4), logprob, logprob.detach(), None, sampled)
    (gradient,) = torch.autograd.grad(objective.loss(scores), logprob)
    expected = [-torch.tensor(0.5).exp().item(), -2.0, -torch.tensor(-0.8).exp().item(), -1.0]
    assert gradient.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("recipe", ["tiny/rldf", "tiny/espo", "tiny/diffu_grpo"])
def test_a_run_with_a_reference_policy_resumes_bit_for_bit(recipe: str, tmp_path: Path) -> None:
    more = ["trainer.updates_per_rollout=2", "objective.kl_weight=0.5"]
    straight = run(recipe, tmp_path / "straight", *more, "trainer.steps=2")
    assert straight.metrics[-1]["kl"] > 0
    run(recipe, tmp_path / "halved", *more, "trainer.steps=1")
    halved = resume(tmp_path / "halved", ["trainer.steps=2"])
    untimed = [
        [{k: v for k, v in step.items() if not k.startswith("time/")} for step in result.metrics]
        for result in (straight, halved)
    ]
    assert untimed[0] == untimed[1]
    file = "checkpoints/step-000002/model.safetensors"
    one, other = load_file(tmp_path / "straight" / file), load_file(tmp_path / "halved" / file)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_forks_over_any_order_are_forkgrpo_when_the_order_is_left_to_right(tmp_path: Path) -> None:
    one = run("tiny/forkgrpo", tmp_path / "forks", "trainer.steps=2")
    other = run("tiny/forkgrpo_anyorder", tmp_path / "any", "trainer.steps=2", "decoding.order=left_to_right")
    for step, same in zip(one.metrics, other.metrics, strict=True):
        assert {k: v for k, v in step.items() if not k.startswith("time/")} == {
            k: v for k, v in same.items() if not k.startswith("time/")
        }
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))
    dynamic = run("tiny/forkgrpo_anyorder", tmp_path / "dynamic", "trainer.steps=1").metrics[0]
    assert dynamic["groups/mixed"] > 0 and dynamic["fork/step"] > 0
    assert dynamic["policy/mismatch"] < 1e-5
