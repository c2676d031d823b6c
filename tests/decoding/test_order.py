import torch
from torch import Tensor

from unmask.decoding import Decoding
from unmask.decoding.order import Turn, candidates, choose, next_turn, pack
from unmask.decoding.schedule import Schedule

CPU = torch.device("cpu")


def turn_of(is_candidate: list[list[bool]], share: list[int]) -> Turn:
    candidate = torch.tensor(is_candidate)
    zero = torch.zeros(len(candidate), dtype=torch.int64)
    position = torch.arange(candidate.shape[1]).expand(candidate.shape)
    return Turn(position, candidate, candidate.sum(-1), torch.tensor(share), zero, zero)


def first_turn(decoding: Decoding, revealed: Tensor, key: Tensor | None = None) -> Turn:
    zero = torch.zeros(len(revealed), dtype=torch.int64)
    schedule = Schedule(decoding, CPU) if decoding.order in ("static", "random") else None
    return next_turn(decoding, schedule, revealed, zero if key is None else key, zero, zero)


def test_left_to_right_looks_at_the_first_masked_position_only() -> None:
    revealed = torch.tensor([[True, False, False], [False, False, False], [True, True, False]])
    position, is_masked = candidates(revealed, 1)
    assert position.tolist() == [[1], [0], [2]] and is_masked.all()


def test_candidates_are_the_masked_positions_of_the_rows_own_block() -> None:
    revealed = torch.tensor([[True, False, True, False, False, False], [True, True, True, True, False, True]])
    position, is_masked = candidates(revealed, 3)
    assert position[0].tolist() == [1] and position[1].tolist() == [4]
    position, is_masked = candidates(revealed, 6)
    assert position[0][is_masked[0]].tolist() == [1, 3, 4, 5]
    assert position[1][is_masked[1]].tolist() == [4]
    assert position[1].unique().tolist() == [4]  # padding repeats a real candidate


def test_packing_keeps_the_order_and_pads_with_the_first() -> None:
    position, keep = pack(
        torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.tensor([[False, True, True], [False, False, True]])
    )
    assert position.tolist() == [[5, 6], [9, 9]] and keep.tolist() == [[True, True], [True, False]]


def test_static_reveals_its_share_of_the_most_confident() -> None:
    decoding = Decoding(order="static", length=4, steps=2)
    turn = turn_of([[True, True, True, False]], [2])
    assert choose(decoding, turn, torch.tensor([[0.1, 0.9, 0.5, 0.7]])).tolist() == [[False, True, True, False]]
    # negative entropies: the largest is the surest, and padding never wins
    assert choose(decoding, turn, torch.tensor([[-1.1, -0.9, -0.5, 0.0]])).tolist() == [[False, True, True, False]]


def test_dynamic_reveals_all_confident_positions_or_the_best() -> None:
    decoding = Decoding(order="dynamic", length=3, threshold=0.8)
    confidence = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.2, 0.1], [0.3, 0.2, 0.9]])
    chosen = choose(decoding, turn_of([[True] * 3, [True] * 3, [True, True, False]], [1, 1, 1]), confidence)
    assert chosen.tolist() == [[True, True, False], [True, False, False], [True, False, False]]


def test_only_the_blocks_first_token_opens_it() -> None:
    decoding = Decoding(order="dynamic", length=6, block=3, opening="first_token")
    revealed = torch.tensor([[False] * 6, [True] + [False] * 5, [True, True, True, False, True, False]])
    turn = first_turn(decoding, revealed)
    looked_at = [row[keep].tolist() for row, keep in zip(turn.position, turn.is_candidate, strict=True)]
    assert looked_at == [[0], [1, 2], [3]]
    assert turn.masked.tolist() == [3, 2, 2]


def test_random_order_looks_at_nothing_but_what_it_reveals() -> None:
    decoding = Decoding(order="random", length=8, steps=3)
    turn = first_turn(decoding, torch.zeros(50, 8, dtype=torch.bool), torch.arange(50))
    assert turn.position.shape == (50, 3) and turn.is_candidate.all()
    assert (turn.position.diff(dim=-1) > 0).all()
    assert torch.equal(choose(decoding, turn, torch.zeros(50, 3)), turn.is_candidate)
    # uniform: each position in 3/8 of 20,000 rows, standard error 0.0034; a false alarm at 0.02 is below 1e-7
    turn = first_turn(decoding, torch.zeros(20_000, 8, dtype=torch.bool), torch.arange(20_000))
    share = torch.bincount(turn.position.flatten(), minlength=8) / 20_000
    assert (share - 3 / 8).abs().max() < 0.02


def test_random_order_on_the_linear_schedule_reveals_each_position_by_itself() -> None:
    """With probability 1 − s/t, given that the step reveals anything; steps that do not are counted."""
    decoding = Decoding(order="random", length=2, steps=2, schedule="linear")
    rows = 20_000
    turn = first_turn(decoding, torch.zeros(rows, 2, dtype=torch.bool), torch.arange(rows))
    # times 1, 0.5005, 0.001: a position is revealed first with probability p = 0.4995, both with p²
    both = ((turn.step == 0) & (turn.is_candidate.sum(-1) == 2)).float().mean()
    assert abs(both - 0.4995**2) < 0.02  # standard error 0.0031
    assert abs((turn.step == 1).float().mean() - 0.5005**2) < 0.02
    assert (turn.is_candidate[turn.step == 1].sum(-1) == 2).all()  # the last step takes all
