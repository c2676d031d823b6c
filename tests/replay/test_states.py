from dataclasses import replace

import torch

from unmask.decoding import Rollout
from unmask.replay import reveal_states


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
    credit = torch.tensor([[1.0, 2, 3, 0], [9.0, 5, 0, 7]]).unsqueeze(-1)
    states = reveal_states(rollout, credit)
    assert states.response.tolist() == [0, 0, 1, 1]
    assert states.visible.int().tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 0]]
    assert states.state.tolist() == [0, 0, 1, 2, 3]
    assert states.position.tolist() == [1, 2, 0, 1, 3]
    assert states.credit.sum(-1).tolist() == [
        2,
        3,
        1,
        5,
        7,
    ]  # a given token is never scored, whatever its credit
    assert states.item.tolist() == [[2, 0, 1, -1], [-1, 3, -1, 4]]
    assert (states.replayed_states, states.replayed_tokens) == (4, 5)


def test_the_same_tokens_in_another_prompt_are_another_state() -> None:
    rollout = make_rollout([[0, 1], [0, 1]])
    same = replace(rollout, response_ids=torch.tensor([[5, 6], [5, 6]]))
    assert len(reveal_states(same, torch.ones(2, 2, 1))) == 4
    one_prompt = replace(same, prompt=torch.tensor([0, 0]))
    assert len(reveal_states(one_prompt, torch.ones(2, 2, 1))) == 2


def test_a_visible_mask_token_is_not_a_hidden_position() -> None:
    """A model may write the mask token; a state that shows it differs from one in which the position is still open."""
    rollout = replace(
        make_rollout([[0, 1, 2], [2, 0, 1]]),
        response_ids=torch.tensor([[1, 6, 7], [6, 1, 7]]),
        prompt=torch.tensor([0, 0]),
    )
    states = reveal_states(rollout, torch.ones(2, 3, 1))
    assert len(states) == 5  # only the fully masked start is shared
