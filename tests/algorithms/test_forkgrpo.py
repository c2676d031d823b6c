"""ForkGRPO's forks, credit and normalisers, against values computed by hand from METHODS' formulas."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.helpers import FixedActor, make_prompts, parity_reward
from unmask.algorithms import Experience, ForkGRPO, ForkGRPOSettings, Plan
from unmask.algorithms.forkgrpo import fork_steps
from unmask.decoding import Decoding, Rollout
from unmask.objectives import ClippedObjective, ObjectiveSettings

LENGTH, SIZE = 8, 4
WINDOWS = ((2, 3), (5, 6))


def collect(
    make_model: Callable, judge: Callable[[Rollout], Tensor] = parity_reward, weight: float = 0.5, **taken_away: Any
) -> Experience:
    settings = ForkGRPOSettings(group_size=SIZE, windows=WINDOWS, segment_weight=weight, **taken_away)
    algorithm = ForkGRPO(settings, ObjectiveSettings())
    actor = FixedActor(make_model(), Decoding(length=LENGTH), judge)
    return algorithm.collect(make_prompts(3, 5, 8), actor)


def plan(experience: Experience) -> Plan:
    actor = FixedActor(None, Decoding(length=LENGTH), parity_reward)  # type: ignore[arg-type]  # replay samples nothing
    return ForkGRPO(ForkGRPOSettings(windows=WINDOWS), ObjectiveSettings()).replay(experience, actor, 1)[0]


def constant_reward(rollout: Rollout, value: float) -> Tensor:
    return torch.full((len(rollout.group),), value)


def test_forks_are_where_the_reference_is_least_sure() -> None:
    entropy = torch.tensor([[9.0, 9, 1, 3, 9, 2, 2, 9]])
    assert fork_steps(entropy, torch.arange(8)[None], WINDOWS).tolist() == [[3, 5]]  # the first on ties


def test_a_step_of_several_tokens_is_as_unsure_as_their_mean_and_late_windows_have_no_fork() -> None:
    entropy = torch.tensor([[1.0, 9, 4, 4, 5, 0, 0, 0]])
    steps = torch.tensor([[3, 3, 2, 2, 0, 0, 1, 1]])  # means by step: 2.5, 0, 4, 5; there is no step 4
    assert fork_steps(entropy, steps, ((1, 2), (3, 5))).tolist() == [[2, 3]]
    assert fork_steps(entropy, steps, ((1, 3), (4, 5))).tolist() == [[3, 8]]


def test_branches_copy_the_references_prefix_and_start_at_the_fork(make_model: Callable) -> None:
    rollout = collect(make_model).rollout
    assert len(rollout.response_ids) == 3 * SIZE * 3
    for prompt in range(3):
        reference = prompt * SIZE
        fork = fork_steps(rollout.entropy[reference][None], torch.arange(LENGTH)[None], WINDOWS)[0]
        for branch, start in enumerate(fork.tolist(), 1):
            rows = (rollout.group == prompt * 3 + branch).nonzero().flatten()
            assert len(rows) == SIZE and (rollout.prompt[rows] == prompt).all()
            assert (rollout.response_ids[rows, :start] == rollout.response_ids[reference, :start]).all()
            assert not rollout.trainable[rows, :start].any() and rollout.trainable[rows, start:].all()
            assert rollout.response_ids[rows].unique(dim=0).shape[0] > 1


def test_tokens_generated_are_the_formulas(make_model: Callable) -> None:
    rollout = collect(make_model).rollout
    forks = fork_steps(rollout.entropy[::SIZE][:3], torch.arange(LENGTH).expand(3, -1), WINDOWS)
    assert rollout.tokens_generated == 3 * SIZE * LENGTH + int((SIZE * (LENGTH - forks)).sum())
    assert rollout.row_forwards < rollout.tokens_generated  # responses share states, which are run once


def test_credit_equals_hand_computed_values(make_model: Callable) -> None:
    experience = collect(make_model, weight=0.5)
    rollout, reward = experience.rollout, experience.reward.tolist()
    for prompt in range(3):
        groups = [(rollout.group == prompt * 3 + j).nonzero().flatten().tolist() for j in range(3)]
        reference = prompt * SIZE
        forks = fork_steps(rollout.entropy[reference][None], torch.arange(LENGTH)[None], WINDOWS)[0].tolist()
        starts = [0, *forks, LENGTH]
        tokens = sum(SIZE * (LENGTH - start) for start in starts[:-1])
        values = [sum(reward[row] for row in rows) / SIZE for rows in groups] + [reward[reference]]
        for j, rows in enumerate(groups):
            mean = values[j]
            std = (sum((reward[row] - mean) ** 2 for row in rows) / (SIZE - 1)) ** 0.5
            for row in rows:
                expected = torch.zeros(LENGTH, dtype=torch.float64)
                expected[starts[j] :] = (reward[row] - mean) / (std + 1e-4) / tokens / 3
                torch.testing.assert_close(experience.credit[row, :, 0], expected)
        along = torch.zeros(LENGTH, dtype=torch.float64)
        for j in range(3):
            change = values[j + 1] - values[j]
            noise = 0.25 * (1 / SIZE + (1 / SIZE if j < 2 else 0))
            along[starts[j] : starts[j + 1]] = change * change**2 / (change**2 + noise + 1e-12)
        torch.testing.assert_close(experience.credit[reference, :, 1], 0.5 * along / LENGTH / 3)
        assert (experience.credit[reference + 1 : reference + SIZE, :, 1] == 0).all()
    assert (experience.credit[3 * SIZE :, :, 1] == 0).all()


def test_a_failed_reference_can_still_have_credit_for_a_good_segment(make_model: Callable) -> None:
    """Sign mismatch, the paper's figure 3: a response-level advantage would push all of it down."""
    experience = collect(make_model, weight=1.0)
    failed = [row for row in range(0, 3 * SIZE, SIZE) if experience.reward[row] == 0]
    assert failed and any((experience.credit[row, :, 1] > 0).any() for row in failed)


def test_equal_rewards_give_exactly_zero_credit_and_nothing_to_replay(make_model: Callable) -> None:
    for value in (0.0, 0.1, 1.0):
        experience = collect(make_model, partial(constant_reward, value=value))
        assert (experience.credit == 0).all()
        assert len(plan(experience).states) == 0


def test_each_token_with_credit_of_both_kinds_is_scored_once(make_model: Callable) -> None:
    experience = collect(make_model)
    states = plan(experience).states
    assert states.asked == states.tokens == int((experience.credit != 0).any(-1).sum())
    assert ((experience.credit != 0).sum(-1) == 2).any()
    objective = plan(experience).objective
    assert isinstance(objective, ClippedObjective)
    torch.testing.assert_close(objective.credit.sum(), experience.credit.sum(), rtol=0, atol=1e-12)


def test_forks_at_random_steps_are_uniform_in_their_windows_and_follow_the_key_alone(make_model: Callable) -> None:
    algorithm = ForkGRPO(ForkGRPOSettings(windows=((1, 3), (4, 7)), fork_at="random"), ObjectiveSettings())
    n = 6000
    rollout = collect(make_model).rollout.take(torch.zeros(n, dtype=torch.int64))
    step = algorithm.forks(rollout, torch.arange(n))
    for window, (first, last) in enumerate(((1, 3), (4, 7))):
        share = torch.bincount(step[:, window], minlength=last + 1)[first:].double() / n
        assert share.sum() == 1
        torch.testing.assert_close(share, torch.full_like(share, 1 / (last - first + 1)), atol=0.03, rtol=0)
    assert torch.equal(step, algorithm.forks(rollout, torch.arange(n)))
    entropy = ForkGRPO(ForkGRPOSettings(windows=((1, 3), (4, 7))), ObjectiveSettings())
    assert len(entropy.forks(rollout, torch.arange(n)).unique(dim=0)) == 1


def test_random_forks_count_steps_and_not_positions(make_model: Callable) -> None:
    """In any order: a window that lies behind the last step has no fork."""
    algorithm = ForkGRPO(ForkGRPOSettings(windows=((1, 2), (4, 6)), fork_at="random"), ObjectiveSettings())
    rollout = replace(
        collect(make_model).rollout.take(torch.zeros(50, dtype=torch.int64)),
        reveal_step=torch.tensor([[2, 2, 1, 1, 0, 0, LENGTH, LENGTH]]).expand(50, -1),
    )
    step = algorithm.forks(rollout, torch.arange(50))
    assert set(step[:, 0].tolist()) == {1, 2} and set(step[:, 1].tolist()) == {LENGTH}


def test_without_fork_credit_continuations_only_give_values(make_model: Callable) -> None:
    whole, less = collect(make_model), collect(make_model, fork_credit=False)
    rollout = less.rollout
    is_fork = rollout.group % 3 > 0
    assert whole.credit[is_fork].any() and not less.credit[is_fork].any()
    assert torch.equal(less.credit[..., 1], whole.credit[..., 1]) and less.credit[..., 1].any()
    # N is then the roots' tokens
    tokens = rollout.trainable.sum(-1).double()
    all_tokens = torch.zeros(3, dtype=torch.float64).index_add(0, rollout.prompt, tokens)[rollout.prompt]
    expected = whole.credit[..., 0] * (all_tokens / (SIZE * LENGTH)).unsqueeze(-1)
    torch.testing.assert_close(less.credit[~is_fork][..., 0], expected[~is_fork])


def test_without_shrinkage_segments_have_their_value_change(make_model: Callable) -> None:
    experience = collect(make_model, weight=1.0, shrinkage=False)
    rollout, reward = experience.rollout, experience.reward
    for prompt in range(3):
        rows = [rollout.group == prompt * 3 + j for j in range(3)]
        values = [reward[row].mean() for row in rows] + [reward[prompt * SIZE]]
        starts = [*(int((~rollout.trainable[row][0]).sum()) for row in rows), LENGTH]
        along = torch.cat([(values[j + 1] - values[j]).expand(starts[j + 1] - starts[j]) for j in range(3)])
        torch.testing.assert_close(experience.credit[prompt * SIZE, :, 1], along / LENGTH / 3)


@pytest.mark.parametrize("windows", [[[0, 3]], [[4, 3]], [[2, 5], [5, 6]], [[5, 6], [2, 3]]])
def test_windows_out_of_order_are_refused(windows: list[list[int]]) -> None:
    with pytest.raises(ValidationError, match="after the one before"):
        ForkGRPOSettings(windows=windows)


def test_windows_beyond_the_response_are_refused() -> None:
    with pytest.raises(ValueError, match=r"windows ends at 127, but decoding\.length=64"):
        ForkGRPOSettings().check(Decoding(length=64), ObjectiveSettings())


def test_the_papers_token_budget() -> None:
    """METHODS: with the defaults 5,912 ≤ N ≤ 6,656 tokens a prompt."""
    settings = ForkGRPOSettings()
    size, length = settings.group_size, 256
    budget = [size * length + sum(size * (length - window[end]) for window in settings.windows) for end in (1, 0)]
    assert budget == [5912, 6656]
