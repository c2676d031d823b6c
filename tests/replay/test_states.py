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
    assert states.scored.int().tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    assert states.credit.flatten().tolist() == [2, 3, 1, 5, 7]  # a given token is never scored, whatever its credit
