"""States: which partly masked responses are looked at again, and which tokens are scored in each."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.decoding.distinct import distinct_rows
from unmask.decoding.rollout import Rollout


@dataclass(frozen=True)
class States:
    """S states of the responses of one rollout, with N scored tokens in all. Indices only, never logits.

    Several responses may meet in one state; then it is here once, with the scored tokens of all of them.
    """

    response: Tensor
    """(S,) int64: a row of the rollout that was in this state; its prompt and visible tokens are the state's."""
    visible: Tensor
    """(S, L) bool: response positions shown to the model; all others are the mask token."""
    prompt_visible: Tensor | None
    """(S, P) bool: prompt positions shown; all others are the mask token. None = the whole prompt is."""
    state: Tensor
    """(N,) int64, ascending: the state that each token is scored in."""
    row: Tensor
    """(N,) int64: the response that each token is from."""
    position: Tensor
    """(N,) int64, ascending within a state: the token's place in the response."""
    source: Tensor
    """(N,) int64: which of the states asked for the token was listed under; states that were merged keep theirs."""
    is_revealed: Tensor
    """(N,) bool: the rollout revealed the token in this very state, so that its log-probability there is known."""
    asked: int
    """States asked for, each response's counted on their own; `len` counts those that are run. After a draw both are
    the states drawn."""

    def __len__(self) -> int:
        return self.response.shape[0]

    @property
    def tokens(self) -> int:
        """N, the scored tokens."""
        return self.state.shape[0]

    def select(self, kept: Tensor) -> "States":
        """Only the states where `kept` (S,) bool is true, with their tokens, those where `kept[state]` is."""
        token = kept[self.state]
        return States(
            response=self.response[kept],
            visible=self.visible[kept],
            prompt_visible=None if self.prompt_visible is None else self.prompt_visible[kept],
            state=(kept.cumsum(0) - 1)[self.state[token]],
            row=self.row[token],
            position=self.position[token],
            source=self.source[token],
            is_revealed=self.is_revealed[token],
            asked=int(kept.sum()),
        )


def reveal_states(rollout: Rollout, scored: Tensor) -> States:
    """Tokens in the very state in which the rollout revealed them; states in which none is scored are left out.

    Args:
        rollout: B responses; the state of step t shows what was given or revealed before t.
        scored: (B, L) bool; tokens that the rollout did not sample are never scored.
    """
    length = rollout.response_ids.shape[1]
    row, position = (scored & rollout.trainable).nonzero(as_tuple=True)  # (n,)
    step = rollout.reveal_step[row, position]
    own, which = torch.unique(row * length + step, return_inverse=True)
    response, step = own // length, own % length
    here = torch.zeros(len(own), length, dtype=torch.bool, device=row.device)
    here[which, position] = True
    return masked_states(rollout, response, rollout.reveal_step[response] < step.unsqueeze(-1), here)


def masked_states(
    rollout: Rollout,
    response: Tensor,
    visible: Tensor,
    scored: Tensor,
    prompt_visible: Tensor | None = None,
) -> States:
    """Responses masked in any way. Equal states, of one prompt with the same tokens visible, are merged.

    Args:
        rollout: B responses.
        response: (A,) the response of each state asked for; a response may be asked for often.
        visible: (A, L) bool, which of its tokens are shown.
        scored: (A, L) bool, which are scored; a state without any is left out.
        prompt_visible: (A, P) bool, which prompt tokens are shown; None = all.

    Raises:
        ValueError: a token is scored where it is visible.
    """
    if (visible & scored).any():
        raise ValueError("a token cannot be scored in a state that shows it")
    (kept,) = scored.any(-1).nonzero(as_tuple=True)
    response, visible, scored = response[kept], visible[kept], scored[kept]
    prompt_visible = None if prompt_visible is None else prompt_visible[kept]
    content = [rollout.prompt[response].unsqueeze(-1), torch.where(visible, rollout.response_ids[response], -1)]
    if prompt_visible is not None:
        content.append((prompt_visible | ~rollout.prompt_mask[response]).long())
    first, merged = distinct_rows(torch.cat(content, dim=-1))

    asked, position = scored.nonzero(as_tuple=True)  # (N,)
    order = (merged[asked] * rollout.response_ids.shape[1] + position).argsort(stable=True)
    asked, position = asked[order], position[order]
    row = response[asked]
    return States(
        response=response[first],
        visible=visible[first],
        prompt_visible=None if prompt_visible is None else prompt_visible[first],
        state=merged[asked],
        row=row,
        position=position,
        source=kept[asked],
        is_revealed=_is_reveal_state(rollout, response, visible, prompt_visible)[asked]
        & _revealed_next(rollout, response, visible)[asked, position],
        asked=len(kept),
    )


def _is_reveal_state(rollout: Rollout, response: Tensor, visible: Tensor, prompt_visible: Tensor | None) -> Tensor:
    """(A,) bool: the rollout passed through this state: it shows exactly the tokens revealed before some step."""
    step = rollout.reveal_step[response]
    last_shown = torch.where(visible, step, -1).amax(-1)
    first_hidden = torch.where(visible, torch.iinfo(step.dtype).max, step).amin(-1)
    passed = last_shown < first_hidden
    if prompt_visible is not None:
        passed &= (prompt_visible | ~rollout.prompt_mask[response]).all(-1)
    return passed


def _revealed_next(rollout: Rollout, response: Tensor, visible: Tensor) -> Tensor:
    """(A, L) bool: the masked tokens that the rollout revealed first."""
    step = torch.where(visible, torch.iinfo(torch.int64).max, rollout.reveal_step[response])
    return step == step.amin(-1, keepdim=True)
