import pytest
import torch
from pydantic import ValidationError

from unmask.decoding import Decoding
from unmask.decoding.order import candidates, choose, static_share


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


def test_static_reveals_its_share_of_the_most_confident() -> None:
    decoding = Decoding(order="static", length=4, steps=2)
    confidence = torch.tensor([[0.1, 0.9, 0.5, 0.7]])
    chosen = choose(decoding, confidence, torch.tensor([[True, True, True, False]]), torch.tensor([2]))
    assert chosen.tolist() == [[False, True, True, False]]


def test_static_shares_fill_the_block_and_the_first_steps_take_the_remainder() -> None:
    decoding = Decoding(order="static", length=8, steps=3)
    shares = [static_share(decoding, torch.tensor([8]), torch.tensor([step])).item() for step in range(3)]
    assert shares == [3, 3, 2]


def test_dynamic_reveals_all_confident_positions_or_the_best() -> None:
    decoding = Decoding(order="dynamic", length=3, threshold=0.8)
    confidence = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.2, 0.1]])
    chosen = choose(decoding, confidence, torch.ones(2, 3, dtype=torch.bool), torch.ones(2, dtype=torch.int64))
    assert chosen.tolist() == [[True, True, False], [True, False, False]]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"order": "static", "length": 10, "block": 4}, "does not divide"),
        ({"order": "static", "length": 8, "block": 2, "steps": 6}, "does not divide over the 4 blocks"),
        ({"order": "dynamic", "length": 8, "threshold": 1.5}, "less than or equal to 1"),
        ({"order": "dynamic", "length": 8, "steps": 8}, "leave steps out"),
        ({"order": "left_to_right", "length": 8, "steps": 4}, "one token a step"),
        ({"order": "left_to_right", "length": 8, "block": 4}, "knows no blocks"),
        ({"order": "sideways"}, "left_to_right"),
        ({"temperature": -1.0}, "greater than or equal to 0"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Decoding(**settings)
