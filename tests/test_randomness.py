import torch

from unmask.randomness import derive, name_seed, stream, uniform


def test_draws_do_not_depend_on_who_shares_the_batch() -> None:
    key, position = torch.arange(10), torch.arange(7)
    together = uniform(key.unsqueeze(-1), position)
    alone = uniform(key[3], position)
    assert torch.equal(together[3], alone)


def test_draws_are_uniform_and_uncorrelated() -> None:
    # 10⁵ draws: the mean's standard error is 0.0009, the bin counts' 2.7 %; a false alarm is below 1e-6
    draw = uniform(torch.arange(1000).unsqueeze(-1), torch.arange(100))
    assert draw.min() > 0 and draw.max() < 1
    assert abs(draw.mean() - 0.5) < 0.005
    counts = torch.histc(draw, 64, 0, 1)
    assert (counts / counts.mean() - 1).abs().max() < 0.15
    for lagged in (draw[1:] * draw[:-1], draw[:, 1:] * draw[:, :-1]):
        assert abs(lagged.mean() - 0.25) < 0.006


def test_keys_do_not_collide() -> None:
    keys = derive(torch.arange(500).unsqueeze(-1), torch.arange(500))
    assert keys.unique().numel() == 250_000


def test_streams_are_named_and_stable() -> None:
    assert name_seed(0, "data", 1) == name_seed(0, "data", 1) != name_seed(0, "data", 2)
    first = torch.rand(3, generator=stream(1, "masks"))
    assert torch.equal(first, torch.rand(3, generator=stream(1, "masks")))
    assert not torch.equal(first, torch.rand(3, generator=stream(2, "masks")))
