from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import FixedActor, make_prompts
from unmask.algorithms import ForkGRPO, ForkGRPOSettings, JustGRPO, JustGRPOSettings, Outcome
from unmask.algorithms.work import Replayed
from unmask.decoding import Decoding, Rollout
from unmask.objectives import ObjectiveSettings

MIXED_BRANCH = Outcome(
    count=torch.tensor([[4.0, 4, 4]]),
    start=torch.tensor([[0.0, 3, 6]]),
    mixed=torch.tensor([[0.0, 1, 0]]),
    changed=torch.tensor([[1.0, 1, 0]]),
    mixed_count=torch.tensor([[4.0, 4, 4]]),
    credited_count=torch.tensor([[0.0, 4, 0]]),
    credited_reference=torch.tensor([[0.0]]),
)
"""The roots agree, the first fork's continuations do not, the second's agree with the reference; L = 8."""


def test_generated_tokens_are_the_formulas() -> None:
    assert MIXED_BRANCH.tokens_generated(8) == 4 * 8 + 4 * (8 - 3) + 4 * (8 - 6)


def test_forkgrpo_replays_mixed_groups_and_segments_of_a_reference_without_group_credit() -> None:
    decoding = Decoding(length=8)
    algorithm = ForkGRPO(ForkGRPOSettings(group_size=4, windows=((1, 3), (4, 6))), ObjectiveSettings())
    # 4 continuations of 5 tokens; on the reference segments 0..2 and 3..5
    assert algorithm.replayed(decoding, MIXED_BRANCH) == Replayed(4 * 5 + 3 + 3, 4 * 5 + 3 + 3)
    unweighted = ForkGRPOSettings(group_size=4, windows=((1, 3), (4, 6)), segment_weight=0)
    assert ForkGRPO(unweighted, ObjectiveSettings()).replayed(decoding, MIXED_BRANCH) == Replayed(20, 20)


def partly_right(rollout: Rollout) -> Tensor:
    """Four rewards, so that now and then one is exactly the mean of others that differ."""
    return (rollout.response_ids.sum(-1) % 4).double() / 3


@pytest.mark.parametrize("stop_at_end", [False, True])
@pytest.mark.parametrize(
    "algorithm",
    [
        ForkGRPO(ForkGRPOSettings(group_size=3, windows=((1, 3), (4, 6))), ObjectiveSettings()),
        JustGRPO(JustGRPOSettings(group_size=4), ObjectiveSettings()),
    ],
)
def test_what_is_told_from_rewards_is_what_is_replayed(
    make_model: Callable, algorithm: ForkGRPO | JustGRPO, stop_at_end: bool
) -> None:
    """Exactly, or where responses end early no more than that."""
    decoding = Decoding(length=8, stop_at_end=stop_at_end)
    some_at_mean = False
    for seed in range(6):
        actor = FixedActor(make_model(alphabet="ab", seed=seed % 2), decoding, partly_right)
        experience = algorithm.collect(make_prompts(3, 4, 4, seed=seed), actor)
        outcome = Outcome.read(experience.rollout, experience.reward)
        (plan,) = algorithm.replay(experience, actor, 1)
        told = algorithm.replayed(decoding, outcome)
        logged, generated = plan.states.asked, experience.rollout.tokens_generated
        if stop_at_end:
            assert logged < told.states and generated < outcome.tokens_generated(8)
        else:
            assert logged == told.states and generated == outcome.tokens_generated(8)
        some_at_mean |= bool((outcome.credited_count < outcome.mixed_count * outcome.mixed).any())
    assert some_at_mean


def test_a_thinned_replay_costs_two_responses_of_a_mixed_group_and_the_share_of_states() -> None:
    decoding = Decoding(length=8)
    settings = {"group_size": 4, "windows": ((1, 3), (4, 6)), "sparse_replay": True}
    assert ForkGRPO(ForkGRPOSettings(**settings), ObjectiveSettings()).replayed(decoding, MIXED_BRANCH).states == 16
    share = ForkGRPOSettings(**settings, state_share=0.3)
    assert ForkGRPO(share, ObjectiveSettings()).replayed(decoding, MIXED_BRANCH) == Replayed(5, 5)  # ⌈4.8⌉
    just = JustGRPOSettings(group_size=4, sparse_replay=True, state_share=0.1)
    outcome = Outcome.expected(prompts=10, count=4, start=[0.0], mixed=0.5)
    assert JustGRPO(just, ObjectiveSettings()).replayed(decoding, outcome) == Replayed(8, 8)  # of 5 · 2 · 8


def test_forks_without_credit_of_their_own_are_not_replayed() -> None:
    settings = ForkGRPOSettings(group_size=4, windows=((1, 3), (4, 6)), fork_credit=False)
    assert ForkGRPO(settings, ObjectiveSettings()).replayed(Decoding(length=8), MIXED_BRANCH) == Replayed(6, 6)


def test_justgrpo_replays_all_tokens_of_mixed_groups() -> None:
    outcome = Outcome.expected(prompts=10, count=4, start=[0.0], mixed=0.5)
    replayed = JustGRPO(JustGRPOSettings(group_size=4), ObjectiveSettings()).replayed(Decoding(length=8), outcome)
    assert replayed == Replayed(10 * 0.5 * 4 * 8, 10 * 0.5 * 4 * 8)
