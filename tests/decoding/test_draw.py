from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from unmask.decoding import Decoding
from unmask.decoding import draw as draw_module
from unmask.decoding.draw import Draws, draw_from_hidden, draw_tokens, truncated
from unmask.models import LLaDAModelLM

LOGITS = torch.tensor([2.0, 0.0, -1.0, 1.0])


def draws_of(logits: Tensor, **settings: object) -> Draws:
    key = torch.arange(len(logits))
    return draw_tokens(logits, Decoding(**settings), key, torch.zeros_like(key), torch.zeros_like(key))


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"temperature": 0.5}, (LOGITS / 0.5).softmax(-1)),
        ({"temperature": 0.5, "sampler": "gumbel"}, (LOGITS / 0.5).softmax(-1)),
        ({"temperature": 2, "top_k": 2}, torch.tensor([2.0, -torch.inf, -torch.inf, 1.0]).div(2).softmax(-1)),
        # at temperature 1 the probabilities are .644, .087, .032, .237: the first two reach 0.8
        ({"top_p": 0.8}, torch.tensor([2.0, -torch.inf, -torch.inf, 1.0]).softmax(-1)),
        ({"top_p": 0.9, "top_k": 3}, torch.tensor([2.0, 0.0, -torch.inf, 1.0]).softmax(-1)),
        ({"top_p": 0.1}, torch.tensor([1.0, 0.0, 0.0, 0.0])),
    ],
    ids=str,
)
def test_tokens_are_drawn_from_the_tempered_truncated_softmax(settings: dict, wanted: Tensor) -> None:
    # 2·10⁵ draws: the largest standard error is 0.0011; a false alarm at 0.006 is below 1e-6
    token, logprob, _, _ = draws_of(LOGITS.expand(200_000, 4), **settings)
    torch.testing.assert_close(torch.bincount(token, minlength=4) / 200_000, wanted, rtol=0, atol=0.006)
    # what is recorded is never truncated
    recorded = (LOGITS / settings.get("temperature", 1)).log_softmax(-1)
    torch.testing.assert_close(logprob, recorded[token])


def test_confidence_is_measured_on_what_is_drawn_from_or_for_gumbel_at_temperature_one() -> None:
    logits = LOGITS.expand(64, 4)
    tempered, raw = (LOGITS / 0.5).softmax(-1), LOGITS.softmax(-1)
    drawn = draws_of(logits, temperature=0.5)
    torch.testing.assert_close(drawn.confidence, tempered[drawn.token])
    drawn = draws_of(logits, temperature=0.5, sampler="gumbel")
    torch.testing.assert_close(drawn.confidence, raw[drawn.token])
    pair = torch.tensor([2.0, 1.0]).div(0.5).softmax(-1)
    drawn = draws_of(logits, temperature=0.5, top_k=2)
    torch.testing.assert_close(drawn.confidence, torch.where(drawn.token == 0, pair[0], pair[1]))


@pytest.mark.parametrize("settings", [{}, {"top_k": 2}, {"top_p": 0.95}])
def test_margin_and_negative_entropy(settings: dict) -> None:
    logits = LOGITS.expand(3, 4)
    p = truncated(LOGITS.unsqueeze(0), settings.get("top_k"), settings.get("top_p")).softmax(-1)[0]
    margin = draws_of(logits, order="static", measure="margin", **settings).confidence
    torch.testing.assert_close(margin, (p[0] - p[3]).expand(3))
    negative = draws_of(logits, order="static", measure="negative_entropy", **settings).confidence
    torch.testing.assert_close(negative, torch.special.entr(p).sum().neg().expand(3))


@pytest.mark.parametrize("sampler", ["categorical", "gumbel"])
def test_temperature_zero_takes_the_most_likely_token_and_reports_temperature_one(sampler: str) -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]]).expand(5, 3)
    token, logprob, entropy, _ = draws_of(logits, temperature=0, sampler=sampler)
    assert (token == 1).all()
    torch.testing.assert_close(logprob, logits.log_softmax(-1)[:, 1])
    torch.testing.assert_close(entropy, torch.special.entr(logits.softmax(-1)).sum(-1))


def test_a_token_that_cannot_be_drawn_has_no_part_in_the_entropy() -> None:
    entropy = draws_of(torch.tensor([[0.0, -torch.inf, 0.0]])).entropy
    torch.testing.assert_close(entropy, torch.tensor([2.0]).log())


def test_truncation_keeps_the_most_likely_token_and_ties() -> None:
    assert truncated(torch.tensor([[1.0, 3.0, 2.0]]), None, 0.01).isfinite().tolist() == [[False, True, False]]
    assert truncated(torch.tensor([[1.0, 1.0, 0.0]]), 1, None).isfinite().tolist() == [[True, True, False]]
    assert truncated(torch.tensor([[1.0, 1.0, 0.0]]), 9, 1.0).isfinite().all()


@pytest.mark.parametrize("guidance", [0.0, 1.5])
def test_the_head_in_chunks_gives_the_same_draws_and_never_holds_more_logits(
    make_model: object, guidance: float
) -> None:
    model: LLaDAModelLM = make_model()  # type: ignore[operator]
    decoding = Decoding(order="static", guidance=guidance, sampler="gumbel")
    copies, width = (2 if guidance else 1), model.config.d_model
    hidden = torch.randn(copies, 7, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    place = torch.tensor([6, 0, 0, 3, 5, 6, 6, 1])
    key = torch.arange(8)
    whole = draw_from_hidden(model, hidden, place, decoding, key, key, key)
    held: list[int] = []
    head = model.head

    def counted(x: Tensor) -> Tensor:
        logits = head(x)
        held.append(logits.numel())
        return logits

    limit = 3 * copies * model.vocab_size
    with patch.object(draw_module, "HEAD_CHUNK", limit), patch.object(model, "head", counted):
        chunked = draw_from_hidden(model, hidden, place, decoding, key, key, key)
    assert len(held) == 3 and max(held) <= limit
    for one, other in zip(whole, chunked, strict=True):
        torch.testing.assert_close(one, other)
    logits = head(hidden[:, place])
    guided = logits[0] if copies == 1 else logits[1] + (guidance + 1) * (logits[0] - logits[1])
    expected = draw_tokens(guided, decoding, key, key, key)
    torch.testing.assert_close(whole.logprob, expected.logprob)
