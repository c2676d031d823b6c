"""The replay engine: log-probabilities of exactly the scored positions, and their gradients, in bounded memory.

States are packed into micro-batches by a token budget. The denoiser runs its last layer and head only at scored
positions, and the head in chunks, so that the N × V matrix of logits is never whole. Gradients are added up over
micro-batches and equal those of one big batch: a token-level loss is a sum over tokens, and for any other loss
`accumulate_joint` first scores without gradients, differentiates the loss with respect to the log-probabilities,
and replays with these coefficients.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.decoding.rollout import Rollout
from unmask.models import Denoiser
from unmask.randomness import name_seed
from unmask.replay.states import States

TokenLoss = Callable[[Tensor, Tensor], Tensor]
"""(log-probabilities (n,), their numbers (n,) among the N scored tokens) → scalar: these tokens' part of the loss."""

HEAD_CHUNK = 2**25
"""Logits held at a time, in elements; 128 MiB in float32."""


class Replay:
    """Scores states of one rollout under the current policy.

    Args:
        model: a denoiser, or one with an adapter around it.
        rollout: the responses that states refer to.
        temperature: divides the logits before the softmax, as when the tokens were sampled.
        batch_tokens: most tokens (rows × (prompt + response)) in one micro-batch.
        dropout_seed: makes dropout a function of the micro-batch, the same in every pass over the same states.
    """

    def __init__(
        self,
        model: Denoiser,
        rollout: Rollout,
        *,
        temperature: float,
        batch_tokens: int,
        dropout_seed: int = 0,
    ) -> None:
        self.model = model
        self.rollout = rollout
        self.temperature = temperature
        self.batch_tokens = batch_tokens
        self.dropout_seed = dropout_seed
        self.has_dropout = any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())

    @torch.no_grad()
    def score(self, states: States) -> Tensor:
        """(N,) log-probabilities of the scored tokens, in at least float32."""
        logprob = states.credit.new_zeros(states.credit.shape[0])
        for index, batch in enumerate(self._batches(states)):
            scored, number = self._logprob(states, batch, index)
            logprob[number] = scored.to(logprob.dtype)
        return logprob

    def accumulate(self, states: States, token_loss: TokenLoss) -> tuple[Tensor, Tensor]:
        """Add the gradients of a token-level loss to the parameters' `.grad`.

        Returns:
            (N,) log-probabilities as scored, and the loss, a scalar; both detached.
        """
        logprob = states.credit.new_zeros(states.credit.shape[0])
        total = states.credit.new_zeros(())
        for index, batch in enumerate(self._batches(states)):
            scored, number = self._logprob(states, batch, index)
            loss = token_loss(scored, number)
            loss.backward()
            logprob[number] = scored.detach().to(logprob.dtype)
            total += loss.detach()
        return logprob, total

    def accumulate_joint(self, states: States, loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """As `accumulate`, for any differentiable loss of all N log-probabilities, e.g. of sequence-level ratios."""
        logprob = self.score(states).requires_grad_()
        value = loss(logprob)
        (coefficient,) = torch.autograd.grad(value, logprob)
        self.accumulate(states, lambda scored, number: (coefficient[number] * scored).sum())
        return logprob.detach(), value.detach()

    def _logprob(self, states: States, batch: Tensor, index: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities (n,) of the tokens of a micro-batch of states (b,), and their numbers (n,) among all N."""
        rollout, response = self.rollout, states.response[batch]
        response_ids = torch.where(states.visible[batch], rollout.response_ids[response], self.model.mask_token_id)
        prompt_mask = rollout.prompt_mask[response]
        cut = int((~prompt_mask).sum(-1).min())  # left padding that no row of this batch needs
        prompt_mask, prompt_ids = prompt_mask[:, cut:], rollout.prompt_ids[response, cut:]
        attention = None
        if not prompt_mask.all():
            attention = torch.cat([prompt_mask, torch.ones_like(response_ids, dtype=torch.bool)], dim=-1)

        local, number = _members(states.state, len(states), batch)  # (n,)
        length = response_ids.shape[1]
        # several tokens may be scored at one place; the model predicts it once
        place, at = torch.unique_consecutive(local * length + states.position[number], return_inverse=True)
        place_row, place_position = place // length, place % length  # (p,)
        counts = torch.bincount(place_row, minlength=len(batch))
        starts = counts.cumsum(0) - counts
        column = torch.arange(len(place), device=place.device) - starts[place_row]
        # rows with fewer places than the longest repeat their first
        position = place_position[starts].unsqueeze(-1).repeat(1, int(counts.max()))  # (b, most)
        position[place_row, column] = place_position
        with self._dropout(index):
            hidden = self.model(
                torch.cat([prompt_ids, response_ids], dim=-1),
                attention,
                scored=position + prompt_ids.shape[-1],
                return_hidden=True,
            ).hidden  # (b, most, d)
        token = rollout.response_ids[states.row[number], states.position[number]]
        return token_logprob(self.model, hidden[place_row, column], at, token, self.temperature), number

    def _batches(self, states: States) -> Iterator[Tensor]:
        """Indices of micro-batches; states of like prompt length and like count together, so little is padding."""
        if len(states) == 0:
            return
        length = self.rollout.prompt_ids.shape[1] + self.rollout.response_ids.shape[1]
        padding = (~self.rollout.prompt_mask).sum(-1)[states.response]
        counts = torch.bincount(states.state, minlength=len(states))
        order = (padding * (counts.max() + 1) + counts).argsort(stable=True)
        widths = (length - padding[order]).tolist()
        start = 0
        while start < len(widths):
            # the first row of a batch is its longest
            end = start + max(1, self.batch_tokens // widths[start])
            yield order[start:end]
            start = end

    @contextmanager
    def _dropout(self, index: int) -> Iterator[None]:
        if not (self.has_dropout and self.model.training):
            yield
            return
        device = self.rollout.response_ids.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(name_seed(self.dropout_seed, "dropout", index))
            yield


def token_logprob(model: Denoiser, hidden: Tensor, at: Tensor, token: Tensor, temperature: float) -> Tensor:
    """log-softmax of the head's logits over `temperature`, at tokens.

    Args:
        hidden: (p, d) the denoiser's final hidden states at p places.
        at: (n,) ascending: the place of each token.
        token: (n,) token ids.

    Returns:
        (n,) in at least float32; memory for logits is bounded whatever p is.
    """

    def chunk(hidden: Tensor, at: Tensor, token: Tensor) -> Tensor:
        logits = model.head(hidden)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = logits if temperature == 1 else logits / temperature
        return logits.log_softmax(-1)[at, token]

    rows = max(1, HEAD_CHUNK // model.vocab_size)
    if hidden.shape[0] <= rows:
        return chunk(hidden, at, token)
    pieces = []
    for start in range(0, hidden.shape[0], rows):
        inside = slice(*torch.searchsorted(at, torch.tensor([start, start + rows], device=at.device)).tolist())
        part = (hidden[start : start + rows], at[inside] - start, token[inside])
        pieces.append(checkpoint(chunk, *part, use_reentrant=False) if torch.is_grad_enabled() else chunk(*part))
    return torch.cat(pieces)


def _members(group: Tensor, groups: int, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The members of the chosen groups, one group after the other.

    Args:
        group: (N,) ascending group index of each member.
        groups: how many groups there are.
        chosen: (b,) group indices.

    Returns:
        local (n,): which of the chosen each member belongs to; number (n,): its place in `group`.
    """
    counts = torch.bincount(group, minlength=groups)
    first = (counts.cumsum(0) - counts)[chosen]
    counts = counts[chosen]
    local = torch.arange(len(chosen), device=group.device).repeat_interleave(counts)
    within = torch.arange(len(local), device=group.device) - (counts.cumsum(0) - counts)[local]
    return local, first[local] + within
