from collections.abc import Callable

import torch

from tests.helpers import FixedActor, make_prompts, parity_reward
from unmask.algorithms import ForkGRPO, ForkGRPOSettings
from unmask.decoding import Decoding
from unmask.diagnostics.trees import ForkTrees, value_changes
from unmask.objectives import ObjectiveSettings


def collect(make_model: Callable, decoding: Decoding) -> tuple[ForkTrees, dict[str, float], torch.Tensor]:
    algorithm = ForkGRPO(ForkGRPOSettings(group_size=4, windows=((2, 3), (5, 6))), ObjectiveSettings())
    experience = algorithm.collect(make_prompts(3, 5, 8), FixedActor(make_model(), decoding, parity_reward))
    return ForkTrees.read(experience), experience.metrics, experience.reward


def test_trees_hold_each_groups_rewards_and_the_algorithms_value_changes(make_model: Callable) -> None:
    trees, metrics, reward = collect(make_model, Decoding(length=8))
    assert trees.reward.shape == (3, 3, 4) and trees.exists.all()
    assert torch.equal(trees.reward[:, 0], reward[:12].view(3, 4))  # the roots are sampled first
    assert torch.equal(trees.terminal, trees.reward[:, 0, 0])
    change = value_changes(trees.reward.mean(-1), trees.terminal)
    assert change.abs().mean().item() == metrics["fork/value_change"]
    torch.testing.assert_close(change.sum(-1), trees.terminal - trees.reward[:, 0].mean(-1))  # telescopes


def test_a_state_that_does_not_exist_changes_no_value(make_model: Callable) -> None:
    """Revealing everything in two steps leaves no step for the windows."""
    trees, _, _ = collect(make_model, Decoding(length=8, order="random", steps=2))
    assert not trees.exists[:, 1:].any() and trees.exists[:, 0].all()
    both = ForkTrees.cat([trees, collect(make_model, Decoding(length=8))[0]])
    assert both.exists.sum(-1).tolist() == [1, 1, 1, 3, 3, 3]
    change = value_changes(both.reward.mean(-1), both.terminal)
    assert (change[:3, 1:] == 0).all()


def test_rounding_is_no_change() -> None:
    third = torch.tensor([[(0.1 + 0.2) / 3, 0.3 / 3]], dtype=torch.float64)
    assert value_changes(third, torch.tensor([0.1], dtype=torch.float64)).tolist() == [[0.0, 0.0]]
