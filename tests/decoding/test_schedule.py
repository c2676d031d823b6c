import torch

from unmask.decoding import Decoding
from unmask.decoding.schedule import Schedule


def shares(**settings: object) -> list[int]:
    """How many positions each step of a block reveals."""
    schedule = Schedule(Decoding(order="static", **settings), torch.device("cpu"))
    return schedule.reached.diff().tolist()


def test_even_shares_fill_the_block_and_the_first_steps_take_the_remainder() -> None:
    assert shares(length=8, steps=3) == [3, 3, 2]
    assert shares(length=16, block=8, steps=6) == [3, 3, 2]


def test_more_steps_than_tokens_reveal_one_each_and_then_nothing() -> None:
    """LLaDA's quota: masked // steps = 0, and the first masked % steps = masked steps one more."""
    assert shares(length=3, steps=5) == [1, 1, 1, 0, 0]
    assert sum(shares(length=3, steps=5, schedule="linear")) == 3


def test_linear_shares_are_the_integer_part_of_masked_times_one_minus_s_over_t() -> None:
    # times 1, .75025, .5005, .25075, .001: 8·.24975 = 1.998, 7·.33289 = 2.33, 5·.499 = 2.495, and the last takes 3
    assert shares(length=8, steps=4, schedule="linear") == [1, 2, 2, 3]


def test_the_first_step_may_take_the_blocks_first_token_alone() -> None:
    assert shares(length=8, steps=4, opening="first_token") == [1, 3, 2, 2]
    # as above from the second step on: 7·.33289 = 2.33, 5·.499 = 2.495
    assert shares(length=8, steps=4, opening="first_token", schedule="linear") == [1, 2, 2, 3]
    assert shares(length=2, block=1, steps=2, opening="first_token") == [1]


def test_a_row_finds_its_place_by_what_is_revealed() -> None:
    schedule = Schedule(Decoding(order="static", length=8, steps=3), torch.device("cpu"))
    done = torch.arange(8)  # reached: 0, 3, 6, 8
    step, share = schedule.upcoming(done)
    assert step.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert share.tolist() == [3, 2, 1, 3, 2, 1, 2, 1]
    assert schedule.elapsed(done).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_steps_that_reveal_nothing_are_passed_over() -> None:
    schedule = Schedule(Decoding(order="static", length=32, schedule="linear"), torch.device("cpu"))
    assert schedule.reached[:3].tolist() == [0, 0, 1]
    step, share = schedule.upcoming(torch.tensor([0, 1]))
    assert step.tolist() == [1, 2] and share.tolist() == [1, 1]
    assert schedule.elapsed(torch.tensor([0, 1])).tolist() == [0, 2]
