"""The replay engine: log-probabilities of exactly the scored tokens, and their gradients, in bounded memory.

States are packed into micro-batches by a token budget. The denoiser runs its last layer and head only at scored
positions, and the head in chunks, so that the N × V matrix of logits is never whole. Gradients are added up over
micro-batches and equal those of one big batch. A separable loss, a sum over states, is differentiated batch by batch;
any other is differentiated with respect to the log-probabilities of a first pass without gradients, and the second
pass replays with these coefficients. The head is run backwards only for tokens whose coefficient is not zero.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from unmask.decoding.rollout import Rollout
from unmask.models import Denoiser
from unmask.randomness import name_seed
from unmask.replay.states import States

HEAD_CHUNK = {"cpu": 2**22, "cuda": 2**25}
"""Logits held at a time, in elements: 16 MiB in float32 that stay near a CPU, 128 MiB that keep a GPU busy."""


@dataclass(frozen=True)
class Scores:
    """Log-probabilities of n scored tokens, in at least float32: those of a few states, or all N."""

    number: Tensor
    """(n,) int64: the tokens' numbers among the N of the states."""
    logprob: Tensor
    """(n,) under the current policy; the only one with gradients."""
    old: Tensor
    """(n,) under the policy before the first update on this rollout. In the first update it is `logprob` itself."""
    reference: Tensor | None
    """(n,) under the reference policy; none = there is none."""
    sampled: Tensor
    """(n,) as recorded while sampling: in the same state only where `States.is_revealed`."""

    def select(self, chosen: Tensor) -> "Scores":
        """Only the tokens where `chosen` (n,) bool is true."""
        reference = None if self.reference is None else self.reference[chosen]
        return Scores(self.number[chosen], self.logprob[chosen], self.old[chosen], reference, self.sampled[chosen])


class Loss(Protocol):
    """What the engine needs of an objective."""

    @property
    def is_separable(self) -> bool:
        """The loss of all states is the sum of the losses of any parts they are divided into."""
        ...

    def loss(self, scores: Scores) -> Tensor:
        """A scalar, differentiable in `scores.logprob`."""
        ...


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
    def score(self, states: States, model: Denoiser | None = None) -> Tensor:
        """(N,) log-probabilities of the scored tokens, in at least float32; `model` in place of the current policy."""
        logprob = self._empty(states)
        for index, batch in enumerate(self._batches(states)):
            scored = self._hidden(states, batch, index, model or self.model)
            logprob[scored.number] = self._head(scored).to(logprob.dtype)
        return logprob

    def accumulate(
        self,
        states: States,
        objective: Loss,
        *,
        old: Tensor | None = None,
        reference: Tensor | None = None,
        scale: float = 1.0,
    ) -> tuple[Scores, Tensor]:
        """Add the gradients of `scale` times the objective's loss to the parameters' `.grad`.

        Args:
            old: (N,) log-probabilities under the policy before the first update; none = this is that policy.
            reference: (N,) under the reference policy.

        Returns:
            All tokens' scores and the loss, a scalar; both detached.
        """
        sampled = self.rollout.logprob[states.row, states.position]

        def scores(number: Tensor, logprob: Tensor) -> Scores:
            before = logprob.detach() if old is None else old[number]
            return Scores(number, logprob, before, None if reference is None else reference[number], sampled[number])

        everything = torch.arange(states.tokens, device=states.state.device)
        if objective.is_separable:

            def separable(number: Tensor, logprob: Tensor) -> Tensor:
                return scale * objective.loss(scores(number, logprob))

            logprob, loss = self._accumulate(states, separable)
            return scores(everything, logprob), loss
        leaf = self.score(states).requires_grad_()
        loss = scale * objective.loss(scores(everything, leaf))
        (coefficient,) = torch.autograd.grad(loss, leaf)
        self._accumulate(states, lambda number, logprob: (coefficient[number] * logprob).sum())
        return scores(everything, leaf.detach()), loss.detach()

    def _accumulate(self, states: States, loss: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Gradients of a separable loss of (number (n,), logprob (n,)). Returns all log-probabilities and the loss."""
        all_logprobs = self._empty(states)
        total = all_logprobs.new_zeros(())
        for index, batch in enumerate(self._batches(states)):
            scored = self._hidden(states, batch, index, self.model)
            if scored.hidden.shape[0] <= self._chunk_rows:
                logprob = self._head(scored)
                value = loss(scored.number, logprob)
                value.backward()
            else:
                # through the chunks twice: once to know the loss, then backwards where it depends on the token
                with torch.no_grad():
                    logprob = self._head(scored)
                logprob.requires_grad_()
                value = loss(scored.number, logprob)
                (coefficient,) = torch.autograd.grad(value, logprob)
                self._head_backward(scored, coefficient)
            all_logprobs[scored.number] = logprob.detach().to(all_logprobs.dtype)
            total += value.detach()
        return all_logprobs, total

    @property
    def _chunk_rows(self) -> int:
        return max(1, HEAD_CHUNK[self.rollout.response_ids.device.type] // self.model.vocab_size)

    def _empty(self, states: States) -> Tensor:
        return self.rollout.logprob.new_zeros(states.tokens)

    def _hidden(self, states: States, batch: Tensor, index: int, model: Denoiser) -> "_Scored":
        """A micro-batch of states (b,) through the denoiser, up to the head."""
        rollout, response = self.rollout, states.response[batch]
        mask_id = model.mask_token_id
        response_ids = torch.where(states.visible[batch], rollout.response_ids[response], mask_id)
        prompt_mask, prompt_ids = rollout.prompt_mask[response], rollout.prompt_ids[response]
        if states.prompt_visible is not None:
            prompt_ids = torch.where(states.prompt_visible[batch] | ~prompt_mask, prompt_ids, mask_id)
        cut = int((~prompt_mask).sum(-1).min())  # left padding that no row of this batch needs
        prompt_mask, prompt_ids = prompt_mask[:, cut:], prompt_ids[:, cut:]
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
            hidden = model(
                torch.cat([prompt_ids, response_ids], dim=-1),
                attention,
                scored=position + prompt_ids.shape[-1],
                return_hidden=True,
            ).hidden  # (b, most, d)
        token = rollout.response_ids[states.row[number], states.position[number]]
        return _Scored(model, hidden[place_row, column], at, token, number)

    def _head(self, scored: "_Scored") -> Tensor:
        """(n,) log-probabilities, chunk by chunk."""
        pieces = [self._chunk(part) for part in scored.chunks(self._chunk_rows)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _head_backward(self, scored: "_Scored", coefficient: Tensor) -> None:
        """Gradients of Σ coefficient · log-probability, with the logits of one chunk at a time."""
        (chosen,) = coefficient.nonzero(as_tuple=True)
        if not len(chosen):
            return
        place, at = torch.unique_consecutive(scored.at[chosen], return_inverse=True)
        leaf = scored.hidden.detach()[place].requires_grad_()
        needed = _Scored(scored.model, leaf, at, scored.token[chosen], chosen)
        for part in needed.chunks(self._chunk_rows):
            (coefficient[part.number] * self._chunk(part)).sum().backward()
        scored.hidden[place].backward(leaf.grad)

    def _chunk(self, scored: "_Scored") -> Tensor:
        logits = scored.model.head(scored.hidden)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = logits if self.temperature == 1 else logits / self.temperature
        return logits.log_softmax(-1)[scored.at, scored.token]

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


@dataclass(frozen=True)
class _Scored:
    """n tokens at p places of one micro-batch, before the head."""

    model: Denoiser
    hidden: Tensor
    """(p, d) final hidden states."""
    at: Tensor
    """(n,) ascending: the place of each token."""
    token: Tensor
    """(n,) token ids."""
    number: Tensor
    """(n,) the tokens' numbers among those of all states."""

    def chunks(self, rows: int) -> Iterator["_Scored"]:
        """Parts of at most `rows` places."""
        if self.hidden.shape[0] <= rows:
            yield self
            return
        for start in range(0, self.hidden.shape[0], rows):
            bounds = torch.tensor([start, start + rows], device=self.at.device)
            inside = slice(*torch.searchsorted(self.at, bounds).tolist())
            hidden = self.hidden[start : start + rows]
            yield _Scored(self.model, hidden, self.at[inside] - start, self.token[inside], self.number[inside])


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
