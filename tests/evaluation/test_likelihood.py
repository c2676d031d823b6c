"""The bound on a tiny float64 model, against enumeration of every mask and every order."""

from collections import Counter
from collections.abc import Callable
from itertools import combinations, permutations

import pytest
import torch
from torch import Tensor

from unmask.evaluation.likelihood import is_greedy, likelihood_bound, random_masks
from unmask.models import Denoiser

PROMPT, TARGET = [2, 5], [3, 7, 4]

MakeModel = Callable[..., Denoiser]


def every_mask(length: int) -> Tensor:
    """(1, D, L): all masks, in as many copies as make every size equally frequent."""
    masks = []
    for size in range(1, length + 1):
        subsets = list(combinations(range(length), size))
        copies = 60 // len(subsets)  # 60 is a multiple of 1, 3, 4, 6
        masks += [[i in subset for i in range(length)] for subset in subsets for _ in range(copies)]
    return torch.tensor(masks).unsqueeze(0)


def logprob(model: Denoiser, prompt: list[int], target: list[int], revealed: set[int], position: int) -> float:
    """Of one target token, by a plain pass over the state that shows the `revealed` ones."""
    shown = [token if i in revealed else model.mask_token_id for i, token in enumerate(target)]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + shown])).logits
    assert logits is not None
    return float(logits[0, len(prompt) + position].log_softmax(-1)[target[position]])


def mean_over_orders(model: Denoiser, prompt: list[int], target: list[int]) -> float:
    """Mean over all L! orders of Σ log p(token | prompt, tokens revealed before)."""
    orders = list(permutations(range(len(target))))
    total = sum(
        logprob(model, prompt, target, set(order[:step]), position)
        for order in orders
        for step, position in enumerate(order)
    )
    return total / len(orders)


def bound(model: Denoiser, pairs: list[tuple[list[int], list[int]]], masked: Tensor) -> Tensor:
    width = max(len(prompt) for prompt, _ in pairs)
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt, _ in pairs])
    mask = torch.tensor([[i >= width - len(prompt) for i in range(width)] for prompt, _ in pairs])
    target = torch.tensor([target for _, target in pairs])
    return likelihood_bound(model, ids, mask, target, masked, prompt=torch.arange(len(pairs)), batch_tokens=64)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_mean_over_all_masks_is_the_mean_over_all_orders(make_model: MakeModel, length: int) -> None:
    model, target = make_model(), TARGET[:length]
    found = bound(model, [(PROMPT, target)], every_mask(length))
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.item(), mean_over_orders(model, PROMPT, target), rtol=0, atol=1e-10)


def test_a_mask_weighs_length_over_size(make_model: MakeModel) -> None:
    """One mask of 2 of 3 tokens: 3/2 · (log p_0 + log p_2), given the token between."""
    model = make_model()
    found = bound(model, [(PROMPT, TARGET)], torch.tensor([[[True, False, True]]])).item()
    expected = 1.5 * (logprob(model, PROMPT, TARGET, {1}, 0) + logprob(model, PROMPT, TARGET, {1}, 2))
    assert found == pytest.approx(expected, abs=1e-10)


def test_a_pair_is_not_changed_by_those_beside_it(make_model: MakeModel) -> None:
    model, pairs = make_model(), [(PROMPT, TARGET), ([6, 2, 3, 4, 4], [3, 3, 2])]
    masks = every_mask(3)
    together = bound(model, pairs, masks.expand(2, -1, -1))
    alone = torch.cat([bound(model, [pair], masks) for pair in pairs])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


def test_random_masks_reach_the_exact_value(make_model: MakeModel) -> None:
    """Within 4 standard errors: a false alarm in about 1 of 16,000 seeds."""
    model, targets = make_model(), 400
    masked = random_masks(torch.arange(targets) * 7919, 4, 3)
    prompts = torch.tensor([PROMPT]).expand(targets, -1)
    found = likelihood_bound(
        model,
        prompts,
        torch.ones_like(prompts, dtype=torch.bool),
        torch.tensor([TARGET]).expand(targets, -1),
        masked,
        prompt=torch.zeros(targets, dtype=torch.int64),
        batch_tokens=4096,
    )
    error = found.std() / targets**0.5
    assert error > 0
    assert abs(found.mean() - mean_over_orders(model, PROMPT, TARGET)) < 4 * error


def test_sizes_are_spread_evenly_and_subsets_are_uniform() -> None:
    masked = random_masks(torch.arange(2000) * 7919, 6, 3)
    size = masked.sum(-1)
    assert all((size == n).sum(-1).eq(2).all() for n in (1, 2, 3))  # 6 draws over 3 sizes
    first = random_masks(torch.arange(9000) * 7919, 1, 3).squeeze(1)  # one draw is uniform over sizes and subsets
    counts = Counter(map(tuple, first.tolist()))
    for mask, count in counts.items():
        share = 1 / 3 if sum(mask) == 3 else 1 / 9
        assert abs(count - 9000 * share) < 5 * (9000 * share * (1 - share)) ** 0.5  # false alarm: 4 in 10⁶
    assert len(counts) == 7


def test_greedy_is_what_the_surest_first_writes(make_model: MakeModel) -> None:
    model = make_model()
    shown: dict[int, int] = {}
    for _ in range(3):
        state = [shown.get(i, model.mask_token_id) for i in range(3)]
        with torch.no_grad():
            logits = model(torch.tensor([PROMPT + state])).logits
        assert logits is not None
        best, token = logits[0, len(PROMPT) :].softmax(-1).max(-1)
        surest = max(set(range(3)) - shown.keys(), key=lambda i: float(best[i]))
        shown[surest] = int(token[surest])
    written = [shown[i] for i in range(3)]
    other = [written[0], written[1], (written[2] + 1) % model.vocab_size]
    ids = torch.tensor([PROMPT, PROMPT])
    found = is_greedy(
        model,
        ids,
        torch.ones_like(ids, dtype=torch.bool),
        torch.tensor([other, written]),
        prompt=torch.zeros(2, dtype=torch.int64),
        batch_tokens=64,
    )
    assert found.tolist() == [False, True]
