import torch

from unmask.objectives import clipped, clipped_surrogate

CLIP = {"clip_low": 0.2, "clip_high": 0.3}


def test_hand_computed_clipping() -> None:
    ratio = torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5]).double()
    advantage = torch.tensor([2.0, 1.0, -1.0, 1.0, -1.0]).double()
    # min(ρA, clip(ρ)A): 2; min(1.5, 1.3); min(−1.5, −1.3); min(.5, .8); min(−.5, −.8)
    expected = -torch.tensor([2.0, 1.3, -1.5, 0.5, -0.8]).double()
    logprob = ratio.log()
    torch.testing.assert_close(clipped_surrogate(logprob, torch.zeros_like(ratio), advantage, **CLIP), expected)
    assert clipped(logprob, torch.zeros_like(ratio), advantage, **CLIP).tolist() == [
        False,
        True,
        False,
        False,
        True,
    ]


def test_clipped_tokens_have_no_gradient_and_others_the_ratio_times_advantage() -> None:
    ratio = torch.tensor([1.5, 1.1, 0.5]).double()
    logprob = ratio.log().requires_grad_()
    advantage = torch.tensor([1.0, 1.0, -1.0]).double()
    clipped_surrogate(logprob, torch.zeros(3).double(), advantage, **CLIP).sum().backward()
    torch.testing.assert_close(logprob.grad, -torch.tensor([0.0, 1.1, 0.0]).double())


def test_zero_advantage_gives_exactly_zero_loss_and_gradient() -> None:
    logprob = torch.tensor([-3.0, 2.0]).requires_grad_()
    loss = clipped_surrogate(logprob, torch.zeros(2), torch.zeros(2), **CLIP)
    loss.sum().backward()
    assert not loss.any() and logprob.grad is not None and not logprob.grad.any()


def test_loss_is_homogeneous_in_a_non_negative_weight() -> None:
    generator = torch.Generator().manual_seed(0)
    logprob, old, advantage = torch.randn(3, 100, generator=generator).double()
    once = clipped_surrogate(logprob, old, advantage, **CLIP)
    torch.testing.assert_close(clipped_surrogate(logprob, old, 3.5 * advantage, **CLIP), 3.5 * once)
