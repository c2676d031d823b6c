"""States: which partly masked responses are looked at again, which tokens are scored in each, and with what credit."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.decoding.distinct import distinct_rows
from unmask.decoding.rollout import Rollout


@dataclass(frozen=True)
class States:
    """S states of the responses of one rollout, with N scored tokens in all. Indices and credit only, never logits.

    Several responses may meet in one state; then it is here once, and so is each token that any of them revealed in it.
    """

    response: Tensor
    """(S,) int64: a row of the rollout that was in this state; its prompt and visible tokens are the state's."""
    visible: Tensor
    """(S, L) bool: response positions shown to the model; all others are the mask token."""
    state: Tensor
    """(N,) int64, ascending: the state that each token is scored in."""
    row: Tensor
    """(N,) int64: a row of the rollout that revealed this token in this state."""
    position: Tensor
    """(N,) int64, ascending within a state: the token's place in the response."""
    credit: Tensor
    """(N, 2): sums of the positive and of the negative credit of all responses that revealed this token in this state.
    Losses that are homogeneous in the advantage, as ℓ(ρ, A) is, cannot tell these sums from their parts."""
    item: Tensor
    """(B, L) int64: the number, 0..N−1, under which each token of the rollout is scored; −1 = it is not."""
    replayed_states: int
    """Reveal states with credit, counted for each response on its own; `len` counts those that are run."""
    replayed_tokens: int
    """Tokens with credit, counted for each response on its own."""

    def __len__(self) -> int:
        return self.response.shape[0]


def reveal_states(rollout: Rollout, credit: Tensor) -> States:
    """Every token in the very state in which the rollout revealed it; states in which no token has credit are left out.

    Args:
        rollout: B responses; the state of step t shows what was given or revealed before t.
        credit: (B, L, C), zero for tokens that are not to be scored.
    """
    length = rollout.response_ids.shape[1]
    has_credit = (credit != 0).any(-1) & rollout.trainable  # (B, L)
    row, position = has_credit.nonzero(as_tuple=True)  # (n,)
    step = rollout.reveal_step[row, position]

    # states of single rows, then of all rows: equal prompt and equal visible tokens
    own, which = torch.unique(row * length + step, return_inverse=True)
    response, step = own // length, own % length
    visible = rollout.reveal_step[response] < step.unsqueeze(-1)
    content = torch.where(visible, rollout.response_ids[response], -1)
    first, merged = distinct_rows(torch.cat([rollout.prompt[response].unsqueeze(-1), content], dim=-1))
    state = merged[which]

    # tokens that several rows revealed in one state
    vocabulary = int(rollout.response_ids.max()) + 1
    token = rollout.response_ids[row, position]
    kind, number = torch.unique((state * length + position) * vocabulary + token, return_inverse=True)
    representative = torch.full_like(kind, len(credit)).scatter_reduce(0, number, row, "amin")
    parts = torch.stack([credit.clamp(min=0).sum(-1), credit.clamp(max=0).sum(-1)], dim=-1)[row, position]
    item = torch.full_like(rollout.response_ids, -1)
    item[row, position] = number
    return States(
        response=response[first],
        visible=visible[first],
        state=kind // vocabulary // length,
        row=representative,
        position=kind // vocabulary % length,
        credit=parts.new_zeros(len(kind), 2).index_add(0, number, parts),
        item=item,
        replayed_states=len(own),
        replayed_tokens=len(row),
    )
