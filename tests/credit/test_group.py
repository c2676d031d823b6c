import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.credit import group_advantage, group_statistics, segment_credit


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


def test_rounding_is_no_credit() -> None:
    """Thirds and tenths, in single precision: a response at the mean has none, nor does a mean of the same rewards."""
    group = torch.zeros(8, dtype=torch.int64)
    reward = torch.tensor([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.2, 0.2])
    assert (group_advantage(reward, group) == 0).tolist() == [False, True, False, False, True, False, True, True]
    draw = torch.Generator().manual_seed(0)
    for _ in range(200):
        thirds = torch.randint(0, 4, (8,), generator=draw) / 3
        order = torch.randperm(8, generator=draw)
        value = torch.stack([thirds.mean(), thirds[order].cumsum(0)[-1] / 8]).unsqueeze(0)
        credit = segment_credit(value, value[:, 1], torch.full((1, 2), 8.0), reward_range=1.0)
        assert (credit.advantage == 0).all()
