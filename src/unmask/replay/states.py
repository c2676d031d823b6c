"""States: which partly masked responses are looked at again, which positions are scored in each, and with what credit."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.decoding.rollout import Rollout


@dataclass(frozen=True)
class States:
    """S states of the responses of one rollout, with N scored positions in all. Indices and credit only, never logits."""

    response: Tensor
    """(S,) int64 row of the rollout."""
    visible: Tensor
    """(S, L) bool: response positions shown to the model; all others are the mask token."""
    scored: Tensor
    """(S, L) bool: positions whose log-probability is wanted; N in all, numbered row by row."""
    credit: Tensor
    """(N, C) advantage of each scored position times its normaliser, for each of the C terms of the loss."""

    def __len__(self) -> int:
        return self.response.shape[0]

    def scored_tokens(self) -> tuple[Tensor, Tensor]:
        """Response row and response position (N,) of every scored position, in the order of `credit`."""
        state, position = self.scored.nonzero(as_tuple=True)
        return self.response[state], position


def reveal_states(rollout: Rollout, credit: Tensor) -> States:
    """Every token in the very state in which the rollout revealed it; states in which no token has credit are left out.

    Args:
        rollout: B responses; the state of step t shows what was given or revealed before t.
        credit: (B, L, C), zero for tokens that are not to be scored.
    """
    has_credit = (credit != 0).any(-1) & rollout.trainable  # (B, L)
    row, position = has_credit.nonzero(as_tuple=True)
    step = rollout.reveal_step[row, position]
    steps = rollout.response_ids.shape[1]
    which, state = torch.unique(row * steps + step, return_inverse=True)
    response, step = which // steps, which % steps
    visible = rollout.reveal_step[response] < step.unsqueeze(-1)
    scored = torch.zeros_like(visible)
    scored[state, position] = True
    state, position = scored.nonzero(as_tuple=True)
    return States(response, visible, scored, credit[response[state], position])
