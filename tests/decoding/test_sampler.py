from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.helpers import make_prompts
from unmask.decoding import Decoding, Rollout, decode, sample
from unmask.errors import UnmaskError
from unmask.models import Denoiser
from unmask.replay import Replay, reveal_states

ORDERS = [
    Decoding(order="left_to_right", length=6),
    Decoding(order="static", length=6, block=3, steps=4),
    Decoding(order="dynamic", length=6, block=3, threshold=0.3),
    Decoding(order="random", length=6, block=3, steps=4),
]


STOPPING = [decoding.model_copy(update={"stop_at_end": True}) for decoding in ORDERS]


def every_mode() -> Iterator[Decoding]:
    """Every order, measure, schedule and opening with every sampler and with every cache."""
    samplers: list[dict[str, Any]] = [{}, {"sampler": "gumbel"}, {"top_k": 3, "top_p": 0.9}, {"guidance": 0.5}]
    caches: list[dict[str, Any]] = [{}, {"cache": "prefix"}, {"cache": "dual"}, {"cache": "prefix", "horizon": 1}]
    caches += [{"cache": "dual", "horizon": 0}]
    orders: list[dict[str, Any]] = [{"order": "random", "steps": 4, "schedule": name} for name in ("even", "linear")]
    for measure in ("probability", "margin", "negative_entropy"):
        orders.append({"order": "dynamic", "threshold": 0.3, "measure": measure})
        orders += [{"order": "static", "steps": 4, "schedule": name, "measure": measure} for name in ("even", "linear")]
    orders.append({"order": "dynamic", "threshold": 0.3, "opening": "first_token"})
    orders.append({"order": "static", "steps": 4, "opening": "first_token"})
    yield from (Decoding(length=6, **sampler) for sampler in samplers)
    for order in orders:
        for sampler, cache in [*((sampler, {}) for sampler in samplers), *(({}, cache) for cache in caches[1:])]:
            yield Decoding(length=6, block=3, **order, **sampler, **cache)
    yield Decoding(length=6, block=3, order="dynamic", threshold=0.3, cache="dual", sampler="gumbel")
    yield from STOPPING
    yield Decoding(length=6, block=3, order="dynamic", threshold=0.3, cache="dual", stop_at_end=True)


def described(decoding: Decoding) -> str:
    given = decoding.model_dump(exclude_defaults=True, exclude={"length", "block", "steps", "threshold"})
    return "-".join(str(value) for value in given.values()) or "left_to_right"


def roll(model: Denoiser, decoding: Decoding, rows: torch.Tensor, seed: int = 0) -> Rollout:
    prompts = make_prompts(6, 5, 8, pad=2)
    return sample(
        model,
        prompts.ids[rows],
        prompts.mask[rows],
        decoding,
        prompts.key[rows] + seed,
        prompt=rows,
        group=rows,
    )


@pytest.mark.parametrize("decoding", [*every_mode()], ids=described)
def test_same_tokens_whatever_the_batch_size_row_order_and_padding(make_model: Callable, decoding: Decoding) -> None:
    model, rows = make_model(), torch.arange(6)
    whole = roll(model, decoding, rows)
    # each row is run exactly as often as it revealed something
    assert whole.row_forwards == whole.rows_needed * (2 if decoding.guidance else 1)
    others = torch.tensor([3, 1, 5, 0, 2])
    for order, batch_tokens in ((others, decoding.batch_tokens), (rows.flip(0), 40)):
        again = roll(model, decoding.model_copy(update={"batch_tokens": batch_tokens}), order)
        assert torch.equal(again.response_ids, whole.response_ids[order])
        assert torch.equal(again.reveal_step, whole.reveal_step[order])
        torch.testing.assert_close(again.logprob, whole.logprob[order])
    prompts = make_prompts(6, 5, 8, pad=2)
    first = torch.zeros(1, dtype=torch.int64)
    ids, mask = prompts.ids[1:2, 2:], prompts.mask[1:2, 2:]
    alone = sample(model, ids, mask, decoding, prompts.key[1:2], prompt=first, group=first)
    assert torch.equal(alone.response_ids[0], whole.response_ids[1])
    torch.testing.assert_close(alone.logprob[0], whole.logprob[1])


@pytest.mark.parametrize("decoding", [*every_mode()], ids=described)
def test_divided_forward_passes_change_nothing(
    make_model: Callable, decoding: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rows, seen = make_model(), torch.arange(6), []
    whole = roll(model, decoding, rows)
    monkeypatch.setattr("unmask.decoding.sampler.FORWARD_CHUNK", {"cpu": 1})
    hook = model.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    parts = roll(model, decoding, rows)
    hook.remove()
    if decoding.cache == "none":
        assert max(seen) == (2 if decoding.guidance else 1)
    assert torch.equal(parts.response_ids, whole.response_ids) and torch.equal(parts.reveal_step, whole.reveal_step)
    torch.testing.assert_close(parts.logprob, whole.logprob)
    assert parts.row_forwards == whole.row_forwards


@pytest.mark.parametrize("decoding", [*ORDERS, *STOPPING], ids=described)
def test_recorded_logprob_and_entropy_are_those_of_the_reveal_state(make_model: Callable, decoding: Decoding) -> None:
    model = make_model()
    decoding = decoding.model_copy(update={"temperature": 0.7})
    rollout = roll(model, decoding, torch.arange(6))
    for step in range(6):
        visible = rollout.reveal_step < step
        ids = torch.where(visible, rollout.response_ids, model.mask_token_id)
        mask = torch.cat([rollout.prompt_mask, torch.ones_like(visible)], -1)
        with torch.no_grad():
            logits = model(torch.cat([rollout.prompt_ids, ids], -1), mask).logits[:, -6:] / 0.7
        logprobs = logits.log_softmax(-1)
        here = rollout.reveal_step == step
        expected = logprobs.gather(-1, rollout.response_ids.unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(rollout.logprob[here], expected[here])
        torch.testing.assert_close(rollout.entropy[here], -(logprobs.exp() * logprobs).sum(-1)[here])


@pytest.mark.parametrize("decoding", STOPPING, ids=lambda d: d.order)
def test_a_row_ends_at_its_first_end_token(make_model: Callable, decoding: Decoding) -> None:
    model, rows = make_model(), torch.arange(48) % 6
    end = model.end_token_id
    prompts, key = make_prompts(6, 5, 8, pad=2), torch.arange(48)
    whole, stopped = (
        sample(model, prompts.ids[rows], prompts.mask[rows], how, key, prompt=rows, group=rows)
        for how in (decoding.model_copy(update={"stop_at_end": False}), decoding)
    )
    position = torch.arange(6)
    ended = 0
    for row in range(48):
        tokens, steps = stopped.response_ids[row], stopped.reveal_step[row]
        assert torch.equal(stopped.trainable[row], steps < 6) and (steps >= 0).all()
        never = steps == 6
        assert (tokens[never] == end).all() and (stopped.logprob[row][never] == 0).all()
        ends = position[(whole.response_ids[row] == end)].tolist()
        if not ends:
            assert not never.any() and torch.equal(tokens, whole.response_ids[row])
            continue
        ended += 1
        first = int(((tokens == end) & ~never).int().argmax())
        assert tokens[first] == end and not never[: first + 1].any()
        # up to the first step that reveals an end token nothing has changed
        stop = int(steps[(tokens == end) & ~never].min())
        before = whole.reveal_step[row] < stop
        assert torch.equal(steps < stop, before) and torch.equal(tokens[before], whole.response_ids[row][before])
        assert (whole.response_ids[row][whole.reveal_step[row] == stop] == end).any()
        # what comes behind it later is never sampled
        here = int(((tokens == end) & (steps == stop)).int().argmax())
        assert never[here + 1 :][~before[here + 1 :]].all()
    assert 5 < ended < 48
    assert stopped.tokens_saved == int((stopped.reveal_step == 6).sum()) == 48 * 6 - stopped.tokens_generated > 0
    assert stopped.row_forwards < whole.row_forwards


@pytest.mark.parametrize("decoding", STOPPING, ids=lambda d: d.order)
def test_replay_sees_what_the_model_saw_before_a_row_ended(make_model: Callable, decoding: Decoding) -> None:
    """Masked tokens behind the end stay masked in every state; the recorded log-probabilities come back."""
    model, rows = make_model(), torch.arange(6)
    rollout = roll(model, decoding, rows)
    assert rollout.tokens_saved
    states = reveal_states(rollout, torch.ones_like(rollout.trainable))
    assert states.tokens == rollout.tokens_generated and states.asked == rollout.rows_needed
    assert states.is_revealed.all()
    found = Replay(model, rollout, temperature=1.0, batch_tokens=100).score(states)
    torch.testing.assert_close(found, rollout.logprob[states.row, states.position])


def test_rows_that_are_given_their_end_are_finished(make_model: Callable) -> None:
    model, prompts = make_model(), make_prompts(2, 5, 8)
    given = torch.full((2, 6), model.end_token_id)
    is_given = torch.tensor([[1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]]).bool()
    generator = torch.Generator().manual_seed(0)
    asked = (model, prompts.ids, prompts.mask, STOPPING[0])
    rollout = decode(*asked, generator=generator, given_ids=given, is_given=is_given)
    assert rollout.trainable[0].sum() == 0 and rollout.reveal_step[0].tolist() == [-1, 6, 6, 6, 6, 6]
    assert not rollout.trainable[1, 2:].any() and rollout.reveal_step[1, 3:].tolist() == [6, 6, 6]


def test_given_tokens_are_kept_and_not_trainable(make_model: Callable) -> None:
    prompts = make_prompts(4, 5, 8)
    given = torch.randint(2, 8, (4, 6), generator=torch.Generator().manual_seed(3))
    is_given = torch.arange(6) < torch.tensor([[0], [2], [5], [6]])
    rollout = decode(
        make_model(),
        prompts.ids,
        prompts.mask,
        ORDERS[0],
        generator=torch.Generator().manual_seed(0),
        given_ids=given,
        is_given=is_given,
    )
    assert torch.equal(rollout.response_ids[is_given], given[is_given])
    assert torch.equal(rollout.trainable, ~is_given)
    assert (rollout.reveal_step[is_given] == -1).all()
    assert rollout.tokens_generated == 24 - 13 == rollout.row_forwards
    assert rollout.reveal_step[1].tolist() == [-1, -1, 0, 1, 2, 3]


def test_prompts_padded_on_the_right_or_empty_are_refused(make_model: Callable) -> None:
    prompts = make_prompts(2, 5, 8, pad=2)
    generator = torch.Generator()
    for mask in (prompts.mask.flip(-1), torch.zeros_like(prompts.mask)):
        with pytest.raises(UnmaskError, match="padded on the left"):
            decode(make_model(), prompts.ids, mask, ORDERS[0], generator=generator)


def test_finished_rows_cost_nothing(make_model: Callable) -> None:
    """Rows of the dynamic order end after different numbers of steps; each is run exactly as often as it revealed."""
    rollout = roll(make_model(), ORDERS[2], torch.arange(6))
    steps = rollout.reveal_step.max(-1).values + 1
    assert steps.unique().numel() > 1
    assert rollout.row_forwards == int(steps.sum())


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 6},
        {"steps": 10},
        {"steps": 24},
        {"steps": 8, "schedule": "linear"},
        {"steps": 12, "schedule": "linear", "measure": "margin"},
        {"steps": 6, "opening": "first_token", "measure": "negative_entropy"},
    ],
    ids=str,
)
def test_a_row_that_starts_from_a_state_of_another_goes_on_as_it_would(make_model: Callable, settings: dict) -> None:
    model, prompts = make_model(), make_prompts(2, 5, 8)
    decoding = Decoding(order="static", length=12, block=6, temperature=0, **settings)
    generator = torch.Generator().manual_seed(0)
    whole = decode(model, prompts.ids, prompts.mask, decoding, generator=generator)
    for row in range(2):
        for step in whole.reveal_step[row].unique().tolist():
            is_given = whole.reveal_step[row : row + 1] <= step
            rest = decode(
                model,
                prompts.ids[row : row + 1],
                prompts.mask[row : row + 1],
                decoding,
                generator=generator,
                given_ids=whole.response_ids[row : row + 1],
                is_given=is_given,
            )
            assert torch.equal(rest.response_ids[0], whole.response_ids[row])
            left = ~is_given[0]
            assert torch.equal(rest.reveal_step[0][left], whole.reveal_step[row][left] - (step + 1))


def test_more_steps_than_tokens_still_end(make_model: Callable) -> None:
    for order in ("static", "random"):
        for schedule in ("even", "linear"):
            decoding = Decoding(order=order, length=6, block=3, steps=40, schedule=schedule)
            rollout = roll(make_model(), decoding, torch.arange(6))
            assert (rollout.reveal_step < 6).all() and (rollout.reveal_step >= 0).all()


@pytest.mark.parametrize("decoding", ORDERS[:3], ids=lambda d: d.order)
@pytest.mark.parametrize("sampler", ["categorical", "gumbel"])
def test_temperature_zero_needs_no_randomness(make_model: Callable, decoding: Decoding, sampler: str) -> None:
    decoding = decoding.model_copy(update={"temperature": 0.0, "sampler": sampler})
    one, other = (roll(make_model(), decoding, torch.arange(6), seed) for seed in (0, 99))
    assert torch.equal(one.response_ids, other.response_ids) and torch.equal(one.reveal_step, other.reveal_step)


def test_guidance_moves_the_logits_away_from_those_without_the_prompt(make_model: Callable) -> None:
    model = make_model()
    decoding = Decoding(length=4, temperature=0.7, guidance=1.5)
    rollout = roll(model, decoding, torch.arange(6))
    ids = torch.cat([rollout.prompt_ids, torch.full((6, 4), model.mask_token_id)], -1)
    mask = torch.cat([rollout.prompt_mask, torch.ones(6, 4, dtype=torch.bool)], -1)
    blind = torch.where(torch.arange(9) < 5, model.mask_token_id, ids)
    with torch.no_grad():
        conditional, unconditional = (model(x, mask).logits[:, 5] for x in (ids, blind))
    guided = (unconditional + 2.5 * (conditional - unconditional)) / 0.7
    expected = guided.log_softmax(-1).gather(-1, rollout.response_ids[:, :1]).squeeze(-1)
    torch.testing.assert_close(rollout.logprob[:, 0], expected)
