"""Against what the estimates are in expectation; draws are fixed by their seed, tolerances are 5 standard errors."""

from itertools import combinations

import pytest
import torch

from unmask.diagnostics.monte_carlo import EstimationError, Theorem, stability, theorem
from unmask.diagnostics.trees import ForkTrees


def trees(*rewards: list[float], terminal: float) -> ForkTrees:
    """One reference with the given rewards at each of its states."""
    reward = torch.tensor([rewards], dtype=torch.float64)
    exists = torch.ones(1, len(rewards), dtype=torch.bool)
    return ForkTrees(reward, torch.tensor([terminal], dtype=torch.float64), exists)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_subsample_errors_are_those_of_all_subsets() -> None:
    rewards = [0.0, 1, 1, 0, 1, 1, 1, 0]
    subsets = [sum(subset) / 4 for subset in combinations(rewards, 4)]
    mean = sum(rewards) / 8
    (found,) = stability(trees(rewards, terminal=1.0), [4], 4000, generator())
    assert found.value_error == pytest.approx(sum(abs(v - mean) for v in subsets) / len(subsets), abs=0.01)
    # ΔV = 1 − V is positive unless all four are 1
    assert found.sign_agreement == pytest.approx(sum(v < 1 for v in subsets) / len(subsets), abs=0.02)
    assert found.changed_agreement == found.sign_agreement


def test_all_continuations_agree_with_themselves() -> None:
    (found,) = stability(trees([0.0, 1], [1, 1], terminal=1.0), [2], 5, generator())
    assert found.value_error == 0 and found.sign_agreement == found.changed_agreement == 1


def test_without_value_changes_there_is_no_sign_to_find() -> None:
    (found,) = stability(trees([1.0, 1, 1, 1], terminal=1.0), [2], 5, generator())
    assert found.sign_agreement == 1 and found.changed_agreement is None


def test_error_falls_as_one_over_m_and_is_the_variance_of_the_values() -> None:
    found = theorem(
        trees([0.0, 1, 1, 1], [0, 0, 1, 1], terminal=1.0), [1, 4, 16, 64], 4000, reward_range=1.0, generator=generator()
    )
    # V_0 = .75 with variance 3/16, V_1 = .5 with 1/4; ΔV_0 depends on both, ΔV_1 on the second alone
    expected = ((3 / 16 + 1 / 4) + 1 / 4) / 2
    for row in found.errors:
        assert row.error == pytest.approx(expected / row.size, rel=0.1)
        assert row.error <= row.bound == 0.5 / row.size
    assert found.slope == pytest.approx(-1, abs=0.05)
    # d = −.25, +.5 with mean .125: both are .375 away from it
    assert found.shared_error == 0.375**2


def test_equal_value_changes_leave_a_shared_advantage_nothing_to_miss() -> None:
    found = theorem(trees([1.0, 1], [1, 1], terminal=1.0), [2, 4], 3, reward_range=1.0, generator=generator())
    assert found == Theorem((EstimationError(2, 0.0, 0.25), EstimationError(4, 0.0, 0.125)), 0.0, None)
