"""What is predicted of an update against what runs log, and against an operation counter."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from unmask.algorithms import ALGORITHMS, Experience, Outcome
from unmask.config import load_recipe
from unmask.cost import forward_flops, logged_outcome, outcome_range, update_cost
from unmask.models import load
from unmask.models.dream import DreamConfig, DreamModel
from unmask.models.llada import LLaDAConfig
from unmask.runs import train
from unmask.training.recipe import Recipe

CONFIG = LLaDAConfig(mlp_hidden_size=12288)
RECIPES = [*ALGORITHMS, "forkgrpo_fast"]


@pytest.mark.parametrize("name", RECIPES)
def test_runs_log_what_is_predicted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly for the two whose counts follow from rewards alone; for the others no more than that."""
    overrides = [
        "trainer.steps=2",
        "trainer.prompts_per_step=6",
        "algorithm.group_size=4",
        "evaluation.every=0",
        "trainer.samples_per_step=0",
    ]
    recipe = load_recipe(f"tiny/{name}", [*overrides, f"run.dir={tmp_path / 'run'}"], Recipe)
    outcomes = remember_outcomes(ALGORITHMS[recipe.algorithm.name], monkeypatch)
    steps = train(recipe).metrics
    assert len(steps) == len(outcomes) == 2
    for step, outcome in zip(steps, outcomes, strict=True):
        cost = update_cost(recipe, outcome, CONFIG, prompt_length=17)
        assert step["tokens/generated"] == cost.tokens_generated
        logged, predicted = (
            (step["states/replayed"], step["tokens/replayed"]),
            (cost.replayed.states, cost.replayed.tokens),
        )
        if name in ("forkgrpo", "justgrpo"):
            assert logged == predicted
        elif name == "forkgrpo_fast":
            # the tokens told are those of unshared states; in the others all responses' are scored
            assert 0 < logged[0] <= predicted[0] == predicted[1]
            whole = load_recipe("ablations/groups_of_8", overrides, Recipe)
            assert logged[0] <= logged[1] <= update_cost(whole, outcome, CONFIG, prompt_length=17).replayed.tokens
        else:
            assert 0 < logged[0] <= predicted[0] and 0 < logged[1] <= predicted[1]
        told = logged_outcome(recipe, step).tokens_generated(16)
        # which groups have grown beyond their pilot, early ones or late ones, a mean does not tell
        assert told == pytest.approx(step["tokens/generated"], abs=1e-6, rel=0.1 if name == "forkgrpo_fast" else 0)


def remember_outcomes(algorithm: Callable, monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """The outcome of every rollout batch that the algorithm collects from now on."""
    outcomes = []
    collect = algorithm.collect  # type: ignore[attr-defined]  # a class, known to the table as what makes one

    def remembered(*arguments: object) -> Experience:
        experience: Experience = collect(*arguments)
        outcomes.append(Outcome.read(experience.rollout, experience.reward))
        return experience

    monkeypatch.setattr(algorithm, "collect", remembered)
    return outcomes


def test_the_papers_windows_bound_a_prompts_tokens() -> None:
    """METHODS "ForkGRPO": 5,912 ≤ N ≤ 6,656, and 18.75 to 27.83 % fewer than JustGRPO over both papers' steps."""
    recipe = load_recipe("llada/forkgrpo", (), Recipe)
    low, high = (outcome.tokens_generated(256) / 64 for outcome in outcome_range(recipe, mixed=1.0))
    assert (low, high) == (5912, 6656)
    other = load_recipe("llada/justgrpo", (), Recipe)
    (just, same) = (outcome.tokens_generated(256) / 64 for outcome in outcome_range(other, mixed=1.0))
    assert just == same == 4096
    saved = [100 * (1 - 100 * tokens / (200 * just)) for tokens in (high, low)]
    assert saved == pytest.approx([18.75, 27.83], abs=0.01)


def test_fewer_mixed_groups_cost_less_replay_and_the_same_rollout() -> None:
    recipe = load_recipe("llada/forkgrpo", (), Recipe)
    half, whole = (
        update_cost(recipe, outcome_range(recipe, mixed, changed=0.0)[1], CONFIG, 100) for mixed in (0.5, 1.0)
    )
    assert half.replayed.states == whole.replayed.states / 2
    assert half.replay_flops == whole.replay_flops / 2 and half.rollout_flops == whole.rollout_flops
    # every generated token is replayed, forwards twice (checkpointing) and backwards once (adapters)
    assert whole.replayed.states == whole.tokens_generated
    assert whole.replay_flops == pytest.approx(3 * whole.rollout_flops)


def count(model: torch.nn.Module, config: object, length: int, scored: int) -> tuple[float, float]:
    ids = torch.zeros(1, length, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(ids, scored=torch.arange(scored)[None])
    return counter.get_total_flops(), forward_flops(config, length, scored)


@pytest.mark.parametrize("scored", [1, 5])
def test_operations_are_those_that_torch_counts(scored: int) -> None:
    model, _ = load("tiny", check=False)
    counted, predicted = count(model, model.config, 20, scored)
    assert counted == predicted
    config = DreamConfig(
        hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=11, mask_token_id=1, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    counted, predicted = count(DreamModel(config).eval(), config, 20, scored)
    assert counted == predicted
