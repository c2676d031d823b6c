"""One token for each position looked at, and how sure the model is of it.

Draws are functions of the row's key, its step and the position (see `randomness`). The LM head runs here, on as many
positions at a time as memory allows: the logits of a whole batch are never all there.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from unmask.decoding.settings import Decoding, MeasureName
from unmask.models import Denoiser
from unmask.randomness import derive, uniform

HEAD_CHUNK = 2**25
"""Logits held at a time, in elements; 128 MiB in float32."""


class Draws(NamedTuple):
    """What was drawn at n positions."""

    token: Tensor
    """(n,) int64."""
    logprob: Tensor
    """(n,) of the token under log-softmax(logits / temperature), temperature 1 where it is 0; never truncated."""
    entropy: Tensor
    """(n,) in nats, of the same distribution."""
    confidence: Tensor
    """(n,) by which orders compare; higher is surer."""


def draw_from_hidden(
    model: Denoiser, hidden: Tensor, place: Tensor, decoding: Decoding, key: Tensor, step: Tensor, position: Tensor
) -> Draws:
    """Draws from the head's logits, in bounded memory.

    Args:
        hidden: (1, p, d) the denoiser's hidden states; (2, p, d) with guidance, the second with the prompt masked out.
        place: (n,) in 0..p-1: where each draw's hidden state is.
        key, step, position: (n,) what makes each draw's randomness its own.
    """
    order = place.argsort(stable=True)
    pieces = []
    for chosen in order.split(max(1, HEAD_CHUNK // (len(hidden) * model.vocab_size))):
        places, which = place[chosen].unique_consecutive(return_inverse=True)
        logits = model.head(hidden[:, places])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        guided = logits[0] if len(logits) == 1 else logits[1] + (decoding.guidance + 1) * (logits[0] - logits[1])
        pieces.append(draw_tokens(guided[which], decoding, key[chosen], step[chosen], position[chosen]))
    back = order.argsort()
    return Draws(*(torch.cat(piece)[back] for piece in zip(*pieces, strict=True)))


def draw_tokens(logits: Tensor, decoding: Decoding, key: Tensor, step: Tensor, position: Tensor) -> Draws:
    """One token per row of logits (n, V), computed on in at least float32; `key`, `step`, `position` (n,)."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    tempered = logits if decoding.temperature in (0, 1) else logits / decoding.temperature
    all_logprobs = tempered.log_softmax(-1)
    probabilities = all_logprobs.exp()

    judged = all_logprobs
    if decoding.sampler == "gumbel" and tempered is not logits:
        judged = logits.log_softmax(-1)
    elif decoding.top_k is not None or decoding.top_p is not None:
        judged = truncated(tempered, decoding.top_k, decoding.top_p).log_softmax(-1)

    if decoding.temperature == 0:
        token = logits.argmax(-1)
    elif decoding.sampler == "gumbel":
        token = gumbel_argmax(logits, decoding.temperature, derive(key, step, position))
    else:
        token = inverted(probabilities if judged is all_logprobs else judged.exp(), uniform(key, step, position))
    return Draws(
        token,
        all_logprobs.gather(-1, token.unsqueeze(-1)).squeeze(-1),
        entropy_of(probabilities, all_logprobs),
        measured(decoding.measure, judged, token),
    )


def inverted(probabilities: Tensor, draw: Tensor) -> Tensor:
    """(n,) tokens: the distribution functions of `probabilities` (n, V), inverted at `draw` (n,) in (0, 1)."""
    # float64: over 10⁵ tokens a float32 running sum is off by more than rare tokens weigh
    cumulative = probabilities.double().cumsum(-1)
    threshold = (draw * cumulative[..., -1]).unsqueeze(-1)
    return torch.searchsorted(cumulative, threshold).squeeze(-1).clamp(max=probabilities.shape[-1] - 1)


def gumbel_argmax(logits: Tensor, temperature: float, key: Tensor) -> Tensor:
    """(n,) argmax of logits (n, V) + temperature · Gumbel noise, drawn for each token id from the row's key (n,)."""
    draw = uniform(key.unsqueeze(-1), torch.arange(logits.shape[-1], device=logits.device))
    # float64: in less, the noise of likely tokens is too coarse and their order is no longer a fair draw
    return (logits.double() - temperature * (-draw.log()).log()).argmax(-1)


def truncated(logits: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Logits (n, V) with −∞ for all but the most likely tokens; the most likely one always stays.

    Args:
        top_k: how many stay; ties with the last stay too.
        top_p: tokens stay while those before them hold at most this probability. Applied first, as in Dream.
    """
    if top_p is not None and top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        probabilities = ordered.softmax(-1)
        before = torch.zeros_like(probabilities)
        before[..., 1:] = probabilities.cumsum(-1)[..., :-1]
        logits = logits.masked_fill((before > top_p).scatter(-1, order, before > top_p), -torch.inf)
    if top_k is not None and top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(top_k, dim=-1).values[..., -1:], -torch.inf)
    return logits


def measured(measure: MeasureName, logprobs: Tensor, token: Tensor) -> Tensor:
    """(n,) confidence in `token` (n,) under the distributions `logprobs` (n, V); higher is surer."""
    if measure == "probability":
        return logprobs.gather(-1, token.unsqueeze(-1)).squeeze(-1).exp()
    if measure == "margin":
        first, second = logprobs.topk(2, dim=-1).values.exp().unbind(-1)
        return first - second
    return -entropy_of(logprobs.exp(), logprobs)


def entropy_of(probabilities: Tensor, logprobs: Tensor) -> Tensor:
    """(n,) entropies in nats of distributions (n, V), given twice."""
    # −∞·0 of a token that cannot be drawn counts as 0
    return -(probabilities * logprobs.clamp(min=-1e4)).sum(-1)
