"""ForkGRPO-Fast: what is left out costs nothing, and the mean over every possible draw is the whole gradient."""

import itertools
import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers import FixedActor, gradients, make_prompts, parity_reward
from unmask.algorithms import Algorithm, Experience, ForkGRPO, ForkGRPOSettings, JustGRPO, JustGRPOSettings
from unmask.decoding import Decoding, Rollout
from unmask.decoding.settings import OrderName
from unmask.models import Denoiser
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.replay import ClassDraw, Replay, States, inclusion_probabilities, one_of_each_class, reveal_states
from unmask.replay.subsample import _draw_classes

LENGTH = 4
DECODING = Decoding(length=LENGTH)
THINNING = "unmask.algorithms.thinning"


def several_rewards(rollout: Rollout) -> Tensor:
    """0, 1, 2 or 3 quarters: groups have more than two levels."""
    return (rollout.response_ids.sum(-1) % 4).double() / 4


def forkgrpo(**fast: Any) -> ForkGRPO:
    settings = {"group_size": 4, "windows": ((1, 2),), "segment_weight": 0.5, **fast}
    return ForkGRPO(ForkGRPOSettings(**settings), ObjectiveSettings())


def justgrpo(**fast: Any) -> JustGRPO:
    return JustGRPO(JustGRPOSettings(group_size=4, **fast), ObjectiveSettings())


def gradient(algorithm: Algorithm, experience: Experience, actor: FixedActor, before: Denoiser | None) -> Tensor:
    """The flat gradient of one update; after others that started from the policy `before`."""
    (plan,) = algorithm.replay(experience, actor, 1)
    replay = Replay(actor.model, experience.rollout, temperature=1.0, batch_tokens=10**6)
    replay.accumulate(plan.states, plan.objective, old=None if before is None else replay.score(plan.states, before))
    found = gradients(actor.model)
    parts = [found.get(name, torch.zeros_like(p)).flatten() for name, p in actor.model.named_parameters()]
    return torch.cat(parts)


def class_draws(experience: Experience) -> Iterator[tuple[float, Tensor]]:
    """Uniform numbers (B,) for every choice of one response from each class, with the choice's probability."""
    rollout, reward = experience.rollout, experience.reward
    classes = []
    for group in range(int(rollout.group.max()) + 1):
        rows = (rollout.group == group).nonzero()[:, 0]
        advantage = reward[rows] - reward[rows].mean()
        for sign in (1, -1):
            share = (sign * advantage).clamp(min=0)
            members = rows[share > 1e-9]
            if len(members) and len(rows) > len(members):
                edges = [0.0, *(share[share > 1e-9].cumsum(0) / share.sum()).tolist()]
                classes.append([(high - low, members, (low + high) / 2) for low, high in pairwise(edges)])
    for choice in itertools.product(*classes):
        draw = torch.full_like(reward, 0.5)
        for _, members, number in choice:
            draw[members] = number
        yield math.prod(chance for chance, _, _ in choice), draw


def offsets(probability: Tensor) -> Iterator[tuple[float, float]]:
    """An offset of the systematic sample for each of its outcomes, with the outcome's probability."""
    for low, high in pairwise(sorted({0.0, 1.0, *(probability.cumsum(0) % 1).tolist()})):
        if high - low > 1e-13:
            yield high - low, (low + high) / 2


def expected_gradient(
    monkeypatch: pytest.MonkeyPatch,
    algorithm: Algorithm,
    experience: Experience,
    actor: FixedActor,
    before: Denoiser | None,
) -> tuple[Tensor, int]:
    """Mean over every draw of classes and states, and how many draws there are."""
    settings = algorithm.settings  # type: ignore[attr-defined]  # both have them
    total, count = torch.zeros(1, dtype=torch.float64), 0
    chances = class_draws(experience) if settings.sparse_replay else iter([(1.0, torch.zeros(0))])
    for class_chance, draw in chances:
        monkeypatch.setattr(f"{THINNING}.one_of_each_class", lambda a, g, _, draw=draw: _draw_classes(a, g, draw))
        outcomes: list[tuple[float, float]] = [(1.0, 0.5)]
        if settings.state_share < 1:
            outcomes = [*offsets(laid_out(monkeypatch, algorithm, experience, actor))]
        for state_chance, offset in outcomes:
            monkeypatch.setattr(
                f"{THINNING}.state_order", lambda states, _, offset=offset: in_turn(len(states), offset)
            )
            chance = class_chance * state_chance
            total, count = total + chance * gradient(algorithm, experience, actor, before), count + 1
    return total, count


def in_turn(states: int, offset: float) -> Tensor:
    """An order of states as they come, and the number to draw with."""
    place = torch.arange(states).double()
    return torch.stack([torch.zeros_like(place), place, torch.full_like(place, offset)], dim=-1)


def laid_out(
    monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm, experience: Experience, actor: FixedActor
) -> Tensor:
    """Inclusion probabilities of the states, in order; computed here from the definition."""
    seen: list[Tensor] = []

    def gather(rows: Tensor) -> tuple[Tensor, int]:
        seen.append(rows[:, -1])
        return rows, 0

    monkeypatch.setattr(actor, "gather", gather)
    monkeypatch.setattr(f"{THINNING}.state_order", lambda states, _: in_turn(len(states), 0.5))
    algorithm.replay(experience, actor, 1)
    settings = algorithm.settings  # type: ignore[attr-defined]
    weight = torch.ones_like(seen[0]) if settings.state_draw == "uniform" else seen[0]
    return inclusion_probabilities(weight, math.ceil(settings.state_share * len(weight) - 1e-9))


FAST: dict[str, dict[str, Any]] = {
    "sparse": {"sparse_replay": True},
    "uniform": {"state_share": 0.25},
    "confidence": {"state_share": 0.25, "state_draw": "confidence"},
    "all-uniform": {"pilot": 2, "sparse_replay": True, "state_share": 0.4},
    "all-confidence": {"pilot": 2, "sparse_replay": True, "state_share": 0.4, "state_draw": "confidence"},
}


@pytest.mark.parametrize("is_first", [True, False], ids=["first update", "later update"])
@pytest.mark.parametrize("judge", [parity_reward, several_rewards], ids=["two rewards", "four rewards"])
@pytest.mark.parametrize("fast", FAST.values(), ids=FAST.keys())
@pytest.mark.parametrize("make", [forkgrpo, justgrpo])
def test_the_mean_over_all_draws_is_the_whole_gradient(
    make_model: Callable,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[..., Algorithm],
    fast: dict,
    judge: Callable[[Rollout], Tensor],
    is_first: bool,
) -> None:
    actor = FixedActor(make_model(), DECODING, judge)
    experience = make(**fast).collect(make_prompts(1, 3, 8, seed=2), actor)
    assert experience.credit.any()
    before = None
    if not is_first:
        before = make_model()
        with torch.no_grad():
            for parameter in before.parameters():
                parameter.mul_(1.05)
    expected = gradient(make(), experience, actor, before)
    found, draws = expected_gradient(monkeypatch, make(**fast), experience, actor, before)
    assert draws > 2 and expected.abs().max() > 0
    assert (found - expected).abs().max() < 1e-10


def test_the_references_segment_credit_is_never_thinned_away(make_model: Callable) -> None:
    actor = FixedActor(make_model(), DECODING, parity_reward)
    prompts = make_prompts(6, 3, 8)
    experience = forkgrpo().collect(prompts, actor)
    along = experience.credit[..., 1]
    assert along.any()
    (plan,) = forkgrpo(sparse_replay=True).replay(experience, actor, 1)
    assert isinstance(plan.objective, ClippedObjective)
    kept = torch.zeros_like(along)
    kept[plan.states.row, plan.states.position] = plan.objective.credit[:, 1]
    assert torch.equal(kept, along)
    # a token with both kinds of credit is scored once
    assert len((plan.states.row * LENGTH + plan.states.position).unique()) == plan.states.tokens


@pytest.mark.parametrize("fast", FAST.values(), ids=FAST.keys())
def test_states_that_do_not_count_are_never_run(make_model: Callable, fast: dict) -> None:
    actor = FixedActor(make_model(), DECODING, parity_reward)
    algorithm = forkgrpo(**fast)
    experience = algorithm.collect(make_prompts(6, 3, 8), actor)
    (plan,) = algorithm.replay(experience, actor, 1)
    assert isinstance(plan.objective, ClippedObjective) and (plan.objective.credit != 0).any(-1).all()
    rows = []
    hook = actor.model.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    Replay(actor.model, experience.rollout, temperature=1.0, batch_tokens=50).accumulate(plan.states, plan.objective)
    hook.remove()
    assert sum(rows) == len(plan.states)
    if not fast.get("sparse_replay"):
        every = reveal_states(experience.rollout, (experience.credit != 0).any(-1))
        assert len(plan.states) == math.ceil(fast["state_share"] * len(every))


def test_sparse_replay_runs_the_states_of_one_response_of_each_reward(
    make_model: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = FixedActor(make_model(), DECODING, parity_reward)
    algorithm = forkgrpo(sparse_replay=True, segment_weight=0.0)
    experience = algorithm.collect(make_prompts(6, 3, 8), actor)
    rollout, reward = experience.rollout, experience.reward
    draws = []

    def remembered(*arguments: Tensor) -> ClassDraw:
        draws.append(one_of_each_class(*arguments))
        return draws[-1]

    monkeypatch.setattr(f"{THINNING}.one_of_each_class", remembered)
    (plan,) = algorithm.replay(experience, actor, 1)
    (is_drawn,) = (draw.is_drawn for draw in draws)
    mixed = 0
    for group in range(int(rollout.group.max()) + 1):
        rewards, drawn = reward[rollout.group == group], reward[is_drawn & (rollout.group == group)]
        mixed += (is_mixed := rewards.unique().numel() > 1)
        assert sorted(drawn.tolist()) == ([0.0, 1.0] if is_mixed else [])
    assert mixed > 3

    def contents(states: States) -> set[tuple[int, ...]]:
        shown = torch.where(states.visible, rollout.response_ids[states.response], -1)
        return {
            (prompt, *row) for prompt, row in zip(rollout.prompt[states.response].tolist(), shown.tolist(), strict=True)
        }

    its_own = reveal_states(rollout, (experience.credit != 0).any(-1) & is_drawn.unsqueeze(-1))
    assert contents(plan.states) == contents(its_own) and len(plan.states) == len(its_own)
    # tokens of the other responses that pass through these states count as well
    assert plan.states.tokens > its_own.tokens


def test_where_no_state_is_shared_a_drawn_response_counts_for_its_class(make_model: Callable) -> None:
    actor = FixedActor(make_model(), DECODING, parity_reward)
    algorithm = forkgrpo(sparse_replay=True, segment_weight=0.0, windows=())
    experience = algorithm.collect(make_prompts(6, 3, 8), actor)
    (plan,) = algorithm.replay(experience, actor, 1)
    assert isinstance(plan.objective, ClippedObjective)
    states, seen = plan.states, set()
    alone = (torch.bincount(states.state)[states.state] == 1).nonzero()[:, 0]
    for token in alone.tolist():
        row, position = int(states.row[token]), int(states.position[token])
        of_class = experience.rollout.group == experience.rollout.group[row]
        size = int((of_class & (experience.reward == experience.reward[row])).sum())
        expected = size * experience.credit[row, position]
        torch.testing.assert_close(plan.objective.credit[token], expected, rtol=1e-12, atol=0)
        seen.add(size)
    assert len(seen) > 1


def test_tokens_are_those_of_the_formula_with_the_counts_collected(make_model: Callable) -> None:
    """N = Σ_j M_j (L − a_j)."""
    actor = FixedActor(make_model(), DECODING, parity_reward)
    algorithm = forkgrpo(pilot=2)
    prompts = make_prompts(6, 3, 8)
    rollout = algorithm.collect(prompts, actor).rollout
    references = [int((rollout.prompt == prompt).nonzero()[0, 0]) for prompt in range(6)]
    entropy = rollout.entropy[references]
    fork = 1 + entropy[:, 1:3].argmax(-1)  # (6,) in the window [1, 2]
    counts = torch.bincount(rollout.group).view(6, 2)
    assert counts.unique().tolist() == [2, 4]
    expected = int((counts[:, 0] * LENGTH + counts[:, 1] * (LENGTH - fork)).sum())
    assert rollout.tokens_generated == expected == rollout.rows_needed


def test_statistics_use_the_counts_really_collected(make_model: Callable) -> None:
    actor = FixedActor(make_model(), DECODING, parity_reward)
    experience = forkgrpo(pilot=2, segment_weight=1.0).collect(make_prompts(6, 3, 8), actor)
    rollout, reward = experience.rollout, experience.reward
    seen = set()
    for prompt in range(6):
        rows = [((rollout.group == 2 * prompt + j).nonzero()[:, 0]) for j in (0, 1)]
        counts = [len(group) for group in rows]
        values = [reward[group].mean().item() for group in rows]
        reference = int(rows[0][0])
        tokens = int(rollout.trainable[rollout.prompt == prompt].sum())
        start = LENGTH - int(rollout.trainable[rows[1][0]].sum())
        for group, mean in zip(rows, values, strict=True):
            std = reward[group].std().item()
            for row in group.tolist():
                want = (reward[row].item() - mean) / (std + 1e-4) / tokens / 6
                got = experience.credit[row, -1, 0].item()
                assert got == pytest.approx(want if std else 0.0, abs=1e-12)
        changes = [values[1] - values[0], reward[reference].item() - values[1]]
        noise = [0.25 * (1 / counts[0] + 1 / counts[1]), 0.25 / counts[1]]
        for position, j in ((0, 0), (start, 1)):
            want = changes[j] ** 3 / (changes[j] ** 2 + noise[j] + 1e-12) / LENGTH / 6
            assert experience.credit[reference, position, 1].item() == pytest.approx(want, abs=1e-12)
        seen.add(tuple(counts))
    assert len(seen) > 2


@pytest.mark.parametrize("order", ["left_to_right", "dynamic"])
def test_fast_settings_work_with_responses_that_end(make_model: Callable, order: OrderName) -> None:
    block = None if order == "left_to_right" else 4
    decoding = Decoding(order=order, length=8, stop_at_end=True, block=block)
    actor = FixedActor(make_model(), decoding, parity_reward)
    algorithm = forkgrpo(windows=((1, 3), (4, 6)), **FAST["all-confidence"])
    experience = algorithm.collect(make_prompts(8, 3, 8), actor)
    rollout = experience.rollout
    assert rollout.tokens_saved and rollout.rows_needed <= rollout.tokens_generated
    assert (experience.credit[~rollout.trainable] == 0).all()
    (plan,) = algorithm.replay(experience, actor, 1)
    assert plan.states.is_revealed.all() and rollout.trainable[plan.states.row, plan.states.position].all()
    found = Replay(actor.model, rollout, temperature=1.0, batch_tokens=100).score(plan.states)
    torch.testing.assert_close(found, rollout.logprob[plan.states.row, plan.states.position])


def test_bad_settings_are_refused_in_one_line() -> None:
    for settings in (ForkGRPOSettings(pilot=9, group_size=8), JustGRPOSettings(pilot=9, group_size=8)):
        with pytest.raises(ValueError, match=r"^algorithm.pilot=9 is more than group_size=8") as refused:
            settings.check(Decoding(length=256), ObjectiveSettings())
        assert "\n" not in str(refused.value)
    for share in (0.0, -0.5, 1.5, 2.0):
        for kind in (ForkGRPOSettings, JustGRPOSettings):
            with pytest.raises(ValueError, match="state_share"):
                kind(state_share=share)
