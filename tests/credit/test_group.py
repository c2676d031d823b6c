import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.credit import group_advantage, group_statistics


def test_hand_computed_group() -> None:
    # rewards 1, 0, 0, 1: mean 1/2, sample variance (4 · 1/4)/3 = 1/3
    advantage = group_advantage(torch.tensor([1.0, 0, 0, 1]).double(), torch.zeros(4, dtype=torch.int64))
    expected = 0.5 / ((1 / 3) ** 0.5 + 1e-4)
    torch.testing.assert_close(advantage, torch.tensor([expected, -expected, -expected, expected]).double())


def test_groups_do_not_see_each_other() -> None:
    reward = torch.tensor([1.0, 5, 0, 7, 2, 9]).double()
    group = torch.tensor([0, 1, 0, 1, 0, 1])
    advantage = group_advantage(reward, group)
    torch.testing.assert_close(advantage[::2], group_advantage(reward[::2], torch.zeros(3, dtype=torch.int64)))


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e3, 1e3), st.integers(2, 16), st.sampled_from([torch.float32, torch.float64]))
def test_equal_rewards_give_exactly_zero_advantage(value: float, size: int, dtype: torch.dtype) -> None:
    reward = torch.full((size,), value, dtype=dtype)
    for eps in (1e-4, 0.0):
        assert (group_advantage(reward, torch.zeros(size, dtype=torch.int64), eps) == 0).all()


def test_a_group_of_one_has_no_spread() -> None:
    statistics = group_statistics(torch.tensor([3.0]), torch.tensor([0]))
    assert statistics.std.item() == 0 and statistics.mean.item() == 3 and not statistics.is_mixed.item()
