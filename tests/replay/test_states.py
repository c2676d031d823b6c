from dataclasses import replace

import pytest
import torch

from unmask.decoding import Rollout
from unmask.replay import masked_states, reveal_states


def make_rollout(reveal_step: list[list[int]]) -> Rollout:
    steps = torch.tensor(reveal_step)
    rows, length = steps.shape
    zeros = torch.zeros(rows, length)
    return Rollout(
        prompt_ids=torch.zeros(rows, 1, dtype=torch.int64),
        prompt_mask=torch.ones(rows, 1, dtype=torch.bool),
        response_ids=torch.arange(rows * length).view(rows, length),
        trainable=steps >= 0,
        reveal_step=steps,
        logprob=zeros,
        entropy=zeros,
        prompt=torch.arange(rows),
        group=torch.arange(rows),
        row_forwards=0,
    )


def test_tokens_revealed_together_share_a_state_that_shows_what_came_before() -> None:
    rollout = make_rollout([[1, 0, 0, 2], [-1, 0, 1, 2]])
    scored = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 1]]).bool()
    states = reveal_states(rollout, scored)
    assert states.response.tolist() == [0, 0, 1, 1]
    assert states.visible.int().tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 0]]
    assert states.state.tolist() == [0, 0, 1, 2, 3]
    assert states.position.tolist() == [1, 2, 0, 1, 3]
    # a given token is never scored
    assert states.row.tolist() == [0, 0, 0, 1, 1]
    assert states.is_revealed.all()
    assert (states.asked, states.tokens) == (4, 5)


def test_the_same_tokens_in_another_prompt_are_another_state() -> None:
    rollout = make_rollout([[0, 1], [0, 1]])
    same = replace(rollout, response_ids=torch.tensor([[5, 6], [5, 6]]))
    assert len(reveal_states(same, torch.ones(2, 2, dtype=torch.bool))) == 4
    one_prompt = replace(same, prompt=torch.tensor([0, 0]))
    assert len(reveal_states(one_prompt, torch.ones(2, 2, dtype=torch.bool))) == 2


def test_a_visible_mask_token_is_not_a_hidden_position() -> None:
    """A model may write the mask token; a state that shows it differs from one in which the position is still open."""
    rollout = replace(
        make_rollout([[0, 1, 2], [2, 0, 1]]),
        response_ids=torch.tensor([[1, 6, 7], [6, 1, 7]]),
        prompt=torch.tensor([0, 0]),
    )
    states = reveal_states(rollout, torch.ones(2, 3, dtype=torch.bool))
    assert len(states) == 5  # only the fully masked start is shared


def test_masked_states_are_merged_and_keep_where_each_token_was_asked_for() -> None:
    rollout = replace(
        make_rollout([[0, 1, 2], [0, 2, 1]]),
        response_ids=torch.tensor([[5, 6, 7], [5, 8, 9]]),
        prompt=torch.tensor([0, 0]),
    )
    visible = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]]).bool()
    scored = torch.tensor([[0, 1, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0]]).bool()
    states = masked_states(rollout, torch.tensor([0, 1, 0, 1]), visible, scored)
    assert len(states) == 2 and states.asked == 3  # rows 0 and 1 meet after their first token; a state without tokens
    assert states.state.tolist() == [0, 0, 0, 1]
    assert states.position.tolist() == [1, 2, 2, 0]
    assert states.row.tolist() == [0, 0, 1, 1]
    assert states.source.tolist() == [0, 0, 1, 3]
    # of row 0's state the rollout revealed position 1, of row 1's position 2; row 1 never showed position 1 first
    assert states.is_revealed.tolist() == [True, False, True, False]


def test_states_that_hide_other_prompt_tokens_differ_and_are_none_that_the_rollout_saw() -> None:
    rollout = replace(make_rollout([[0, 1]]), prompt_ids=torch.tensor([[3, 4]]), prompt_mask=torch.ones(1, 2).bool())
    response, visible = torch.zeros(3, dtype=torch.int64), torch.zeros(3, 2).bool()
    prompt_visible = torch.tensor([[1, 1], [1, 0], [1, 0]]).bool()
    states = masked_states(rollout, response, visible, ~visible, prompt_visible)
    assert len(states) == 2 and states.asked == 3
    assert states.is_revealed.tolist() == [True, False, False, False, False, False]


def test_a_visible_token_cannot_be_scored() -> None:
    everything = torch.ones(1, 2).bool()
    with pytest.raises(ValueError, match="cannot be scored"):
        masked_states(make_rollout([[0, 1]]), torch.tensor([0]), everything, everything)
