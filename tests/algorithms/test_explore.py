"""Groups sampled together come out as they would phase by phase, and grow only where rewards differ."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import FixedActor, make_prompts, parity_reward
from unmask.algorithms.explore import Groups, sample_groups
from unmask.algorithms.forkgrpo import fork_steps
from unmask.decoding import Decoding, Rollout
from unmask.models import Denoiser
from unmask.randomness import derive

ORDERS = [
    Decoding(order="left_to_right", length=6),
    Decoding(order="static", length=6, block=3, steps=4),
    Decoding(order="dynamic", length=6, block=3, threshold=0.3),
    Decoding(order="random", length=6, block=3, steps=4),
    Decoding(order="random", length=6, block=3, steps=4, schedule="linear"),
]
WINDOWS = ((1, 2), (3, 4))
SIZE = 4
PROMPTS = make_prompts(5, 5, 8, pad=2)
NAMES = ("response_ids", "reveal_step", "trainable", "prompt", "prompt_ids", "group")


def together(
    model: Denoiser, decoding: Decoding, judge: Callable[[Rollout], Tensor] = parity_reward, pilot: int | None = None
) -> Groups:
    return sample_groups(
        PROMPTS,
        FixedActor(model, decoding, judge),
        SIZE,
        pilot=pilot,
        forks=lambda references, _: fork_steps(references.entropy, references.reveal_step, WINDOWS),
        most_forks=len(WINDOWS),
    )


def in_two_phases(model: Denoiser, decoding: Decoding) -> Rollout:
    """All roots, then all forks; each phase a call of its own."""
    actor = FixedActor(model, decoding, parity_reward)
    prompt = torch.arange(5).repeat_interleave(SIZE)
    member = torch.arange(SIZE).repeat(5)
    roots = actor.sample(PROMPTS, prompt, derive(PROMPTS.key[prompt], 0, member), prompt)
    reference = roots.take(torch.arange(0, 5 * SIZE, SIZE))
    step = fork_steps(reference.entropy, reference.reveal_step, WINDOWS)
    prompt, branch = (index.repeat_interleave(SIZE) for index in (step < 6).nonzero(as_tuple=True))
    member = torch.arange(SIZE).repeat(len(prompt) // SIZE)
    is_given = reference.reveal_step[prompt] < step[prompt, branch].unsqueeze(-1)
    key = derive(PROMPTS.key[prompt], branch + 1, member)
    forks = actor.sample(PROMPTS, prompt, key, prompt, reference.response_ids[prompt], is_given)
    return Rollout.cat([roots, forks])


@pytest.mark.parametrize("stop_at_end", [False, True])
@pytest.mark.parametrize("decoding", ORDERS, ids=lambda decoding: f"{decoding.order}-{decoding.schedule}")
def test_one_queue_gives_the_responses_of_two_phases(
    make_model: Callable, decoding: Decoding, stop_at_end: bool
) -> None:
    model = make_model()
    decoding = decoding.model_copy(update={"stop_at_end": stop_at_end})
    phases = in_two_phases(model, decoding)
    for batch_tokens in (1, 40, 130, 10**6):
        groups = together(model, decoding.model_copy(update={"batch_tokens": batch_tokens}))
        for name in NAMES[:-1]:
            assert torch.equal(getattr(groups.rollout, name), getattr(phases, name)), name
        for name in ("logprob", "entropy"):
            torch.testing.assert_close(getattr(groups.rollout, name), getattr(phases, name), rtol=0, atol=1e-12)
        assert groups.rollout.row_forwards <= groups.rollout.rows_needed == phases.rows_needed
        assert groups.rollout.places_filled <= groups.rollout.places


def test_batches_are_full_while_rows_wait(make_model: Callable) -> None:
    rollout = together(make_model(), ORDERS[0].model_copy(update={"batch_tokens": 44})).rollout  # 4 rows of 11 tokens
    # 5 · 4 roots fill 5 · 6 passes; the forks are there when the first room is
    assert rollout.places and rollout.places_filled / rollout.places >= 0.98


def test_a_pilot_that_agrees_everywhere_ends_it(make_model: Callable) -> None:
    groups = together(make_model(), ORDERS[0], lambda rollout: torch.ones(len(rollout.group)), pilot=2)
    assert torch.bincount(groups.rollout.group).tolist() == [2] * 15
    assert groups.rollout.tokens_generated == 5 * 2 * 6 + int((2 * (6 - groups.start[:, 1:])).sum())


@pytest.mark.parametrize("decoding", ORDERS, ids=lambda decoding: f"{decoding.order}-{decoding.schedule}")
@pytest.mark.parametrize("batch_tokens", [40, 10**6])
def test_only_groups_with_different_pilot_rewards_grow(
    make_model: Callable, decoding: Decoding, batch_tokens: int
) -> None:
    model = make_model()
    full = together(model, decoding)
    groups = together(model, decoding.model_copy(update={"batch_tokens": batch_tokens}), pilot=2)
    assert torch.equal(groups.start, full.start)
    sizes, expected = torch.bincount(groups.rollout.group).tolist(), []
    for group in range(int(full.index.max()) + 1):
        rows = (full.rollout.group == group).nonzero()[:, 0]
        is_mixed = full.reward[rows[:2]].unique().numel() > 1
        expected.append(SIZE if is_mixed else 2)
        # what is there is what the whole group starts with
        own = groups.rollout.take((groups.rollout.group == group).nonzero()[:, 0])
        whole = full.rollout.take(rows[: expected[-1]])
        assert all(torch.equal(getattr(own, name), getattr(whole, name)) for name in NAMES)
    assert sizes == expected and {2, SIZE} == set(expected)
    assert torch.equal(groups.reward, parity_reward(groups.rollout))
    assert groups.rollout.prompt[groups.reference].tolist() == list(range(5))
    assert torch.equal(groups.rollout.group[groups.reference], groups.index[:, 0])


def test_without_forks_there_is_one_group_a_prompt(make_model: Callable) -> None:
    actor = FixedActor(make_model(), ORDERS[0], parity_reward)
    groups = sample_groups(PROMPTS, actor, SIZE, pilot=2)
    assert groups.start.tolist() == [[0]] * 5 and groups.exists.all()
    counts = torch.bincount(groups.rollout.group)
    for group in range(5):
        rewards = groups.reward[groups.rollout.group == group]
        assert counts[group] == (SIZE if rewards[:2].unique().numel() > 1 else 2)
