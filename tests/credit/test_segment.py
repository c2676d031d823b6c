import torch

from unmask.credit import segment_credit


def test_segment_values_telescope() -> None:
    generator = torch.Generator().manual_seed(0)
    value, terminal = (
        torch.rand(5, 4, generator=generator).double(),
        torch.rand(5, generator=generator).double(),
    )
    credit = segment_credit(value, terminal, torch.full_like(value, 8), reward_range=1.0)
    torch.testing.assert_close(credit.value_change.sum(-1), terminal - value[:, 0], rtol=0, atol=1e-14)


def test_hand_computed_noise_and_shrinkage() -> None:
    # V = 1/2, 3/4, 1/4, R = 1; M = 8, 4, 8; rewards in [−1, 1], so ν² = 2²/4 = 1
    value = torch.tensor([[0.5, 0.75, 0.25]]).double()
    credit = segment_credit(value, torch.tensor([1.0]).double(), torch.tensor([[8.0, 4, 8]]).double(), reward_range=2.0)
    change, noise = [0.25, -0.5, 0.75], [1 / 8 + 1 / 4, 1 / 4 + 1 / 8, 1 / 8]
    alpha = [c * c / (c * c + u + 1e-12) for c, u in zip(change, noise, strict=True)]
    expected = [a * c for a, c in zip(alpha, change, strict=True)]
    for found, wanted in [
        (credit.value_change, change),
        (credit.noise, noise),
        (credit.shrinkage, alpha),
        (credit.advantage, expected),
    ]:
        torch.testing.assert_close(found, torch.tensor([wanted], dtype=torch.float64), rtol=0, atol=1e-14)


def test_equal_group_sizes_give_the_papers_noise_scale() -> None:
    # ν² = 1/4: 2ν²/M = 1/16 for M = 8, and ν²/M = 1/32 for the last segment
    value = torch.zeros(1, 4).double()
    credit = segment_credit(value, torch.zeros(1).double(), torch.full_like(value, 8), reward_range=1.0)
    torch.testing.assert_close(credit.noise, torch.tensor([[1 / 16, 1 / 16, 1 / 16, 1 / 32]]).double())


def test_equal_rewards_give_exactly_zero_segment_credit() -> None:
    value = torch.full((3, 4), 0.1)
    credit = segment_credit(value, value[:, 0], torch.full_like(value, 8), reward_range=1.0)
    assert (credit.advantage == 0).all()


def test_shrinkage_keeps_the_sign_and_never_grows() -> None:
    generator = torch.Generator().manual_seed(1)
    value, terminal = torch.rand(50, 4, generator=generator), torch.rand(50, generator=generator)
    credit = segment_credit(value, terminal, torch.full_like(value, 8), reward_range=1.0)
    assert (credit.advantage.sign() == credit.value_change.sign()).all()
    assert (credit.advantage.abs() < credit.value_change.abs()).all()
