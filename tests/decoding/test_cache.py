"""Block-wise caching in the sampler. The authors' tokens are in test_golden.py."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.helpers import make_prompts
from unmask.decoding import Decoding, Rollout, sample
from unmask.models import Denoiser, DreamConfig, DreamModel
from unmask.models.scratch import ScratchSettings, build

ORDERS: list[dict[str, Any]] = [
    {"order": "static", "steps": 8},
    {"order": "dynamic", "threshold": 0.3},
    {"order": "random", "steps": 8, "schedule": "linear"},
    {"order": "static", "steps": 8, "opening": "first_token"},
]
CACHES: list[dict[str, Any]] = [{"cache": "prefix"}, {"cache": "dual"}, {"cache": "prefix", "horizon": 1}]


def shallow(family: str, layers: int) -> Denoiser:
    """A model in float64 with logits that differ clearly from uniform."""
    if family == "llada":
        settings = ScratchSettings(alphabet="abcdef", width=16, layers=layers, heads=2, mlp_width=24)
        model: Denoiser = build(settings, 0)[0]
    else:
        torch.manual_seed(0)
        config = DreamConfig(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            vocab_size=8,
            mask_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
        model = DreamModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(10.0)
    return model.double().eval()


def roll(model: Denoiser, rows: torch.Tensor | None = None, **settings: Any) -> Rollout:
    prompts = make_prompts(6, 5, 8, pad=2)
    rows = torch.arange(6) if rows is None else rows
    given = torch.randint(2, 8, (6, 12), generator=torch.Generator().manual_seed(1))
    is_given = torch.arange(12) < (2 * torch.arange(6)).unsqueeze(-1)  # rows at every stage
    return sample(
        model,
        prompts.ids[rows],
        prompts.mask[rows],
        Decoding(length=12, block=6, **settings),
        prompts.key[rows],
        prompt=rows,
        group=rows,
        given_ids=given[rows],
        is_given=is_given[rows],
    )


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("family", ["llada", "dream"])
def test_a_cache_is_exact_in_a_model_of_one_block(family: str, cache: str, order: dict) -> None:
    """There, keys and values depend on a position's own token alone, and the kept ones never go out of date."""
    model = shallow(family, layers=1)
    exact, cached = roll(model, **order), roll(model, **order, cache=cache)
    assert torch.equal(cached.response_ids, exact.response_ids)
    assert torch.equal(cached.reveal_step, exact.reveal_step)
    torch.testing.assert_close(cached.logprob, exact.logprob)
    torch.testing.assert_close(cached.entropy, exact.entropy)


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_in_deeper_models_a_cache_is_an_approximation(family: str) -> None:
    model = shallow(family, layers=2)
    exact = roll(model, order="static", steps=12)
    for settings in CACHES:
        cached = roll(model, order="static", steps=12, **settings)
        assert not torch.allclose(cached.logprob, exact.logprob)
        # a block's first step is a full pass
        first = exact.reveal_step == 0
        assert torch.equal(cached.reveal_step == 0, first)
        torch.testing.assert_close(cached.logprob[first], exact.logprob[first])


@pytest.mark.parametrize("horizon", [0, 2, 100])
@pytest.mark.parametrize("family", ["llada", "dream"])
def test_prefix_and_dual_see_the_same_horizon(family: str, horizon: int) -> None:
    model = shallow(family, layers=1)
    prefix, dual = (roll(model, order="static", steps=8, cache=cache, horizon=horizon) for cache in ("prefix", "dual"))
    assert torch.equal(prefix.response_ids, dual.response_ids)
    torch.testing.assert_close(prefix.logprob, dual.logprob)
    sees_all = roll(model, order="static", steps=8, cache="dual")
    assert torch.allclose(dual.logprob, sees_all.logprob) == (horizon == 100)


@pytest.mark.parametrize("settings", CACHES, ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("family", ["llada", "dream"])
def test_a_rows_tokens_do_not_depend_on_its_neighbours(family: str, order: dict, settings: dict) -> None:
    model = shallow(family, layers=2)
    whole = roll(model, **order, **settings)
    for rows, batch_tokens in (([4], 10**6), ([3, 1], 10**6), ([5, 4, 3, 2, 1, 0], 34)):
        again = roll(model, torch.tensor(rows), **order, **settings, batch_tokens=batch_tokens)
        assert torch.equal(again.response_ids, whole.response_ids[rows])
        assert torch.equal(again.reveal_step, whole.reveal_step[rows])
        torch.testing.assert_close(again.logprob, whole.logprob[rows])


def test_a_cached_step_of_dual_runs_the_block_alone() -> None:
    model, run = shallow("llada", layers=2), []
    embed = model.embed

    def counted(ids: Tensor) -> Tensor:
        run.append(ids.shape[1])
        return embed(ids)

    with patch.object(model, "embed", counted):
        roll(model, torch.tensor([0]), order="static", steps=4, cache="dual")
    assert run == [17, 6, 17, 6]
