"""What an update of a recipe costs: generated tokens, states and tokens replayed, arithmetic operations.

Nothing is sampled and no weight is loaded: the counts follow from the recipe and from how rewards come out, the
operations from the model's config. Time and memory are not predicted here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unmask.algorithms import ALGORITHMS, Algorithm, Outcome, Replayed
from unmask.training.recipe import Recipe


@dataclass(frozen=True)
class Cost:
    """Of one step: a rollout batch and the updates on it."""

    tokens_generated: float
    """As `tokens/generated` logs it."""
    replayed: Replayed
    """Of the first update, as `states/replayed` and `tokens/replayed` log it."""
    rollout_flops: float
    """Of sampling, if every row in flight went through the model on its own; rows that share a state cost less."""
    replay_flops: float
    """Of all updates on the rollout, likewise."""

    @property
    def flops(self) -> float:
        return self.rollout_flops + self.replay_flops


def update_cost(recipe: Recipe, outcome: Outcome, config: Any, prompt_length: int) -> Cost:
    """The cost of a step with a given outcome.

    Args:
        outcome: how its rewards came out, or are expected to.
        config: the model's config.
        prompt_length: tokens of a prompt, on average.

    Returns:
        Exact counts for ForkGRPO and JustGRPO, left to right and with whole responses; elsewhere, also where responses
        end early, the most there can be. With sparse replay, where the reference may be drawn for its group and is
        replayed for its segments anyway, and with state subsampling, which draws from states that responses share,
        that goes for the states; the tokens are then those of states that no two responses share. Operations leave out
        what grows with neither width nor sequence (norms, softmax, sampling), adapters, the extra pass without
        gradients of losses that are no sum over states, and caches.
    """
    decoding, trainer, objective = recipe.decoding, recipe.trainer, recipe.objective
    length, width = decoding.length, prompt_length + decoding.length
    replayed = _algorithm(recipe).replayed(decoding, outcome)
    generated = outcome.tokens_generated(length)
    rows = generated * decoding.most_steps / length
    rollout = rows * forward_flops(config, width, decoding.block_length)
    scored = min(replayed.tokens / replayed.states, float(length)) if replayed.states else 0.0
    forward = replayed.states * forward_flops(config, width, scored)
    # backwards: gradients of activations, and of weights where those are trained; checkpointing runs forwards again
    passes = 1 + (1 if recipe.model.lora else 2) + (1 if recipe.model.gradient_checkpointing else 0)
    reference = 1 if objective.kl_weight and objective.reference == "start" else 0
    return Cost(generated, replayed, rollout, forward * (passes * trainer.updates_per_rollout + reference))


def outcome_range(recipe: Recipe, mixed: float, changed: float = 1.0) -> tuple[Outcome, Outcome]:
    """The cheapest and the dearest outcome: forks at the last and at the first step of their windows.

    Args:
        mixed: share of groups whose rewards vary; 1 is the most that can be replayed.
        changed: share of segments along which the value changes.
    """
    windows = _algorithm(recipe).windows
    late, early = (_expected(recipe, [float(window[end]) for window in windows], mixed, changed) for end in (1, 0))
    return late, early


def logged_outcome(recipe: Recipe, metrics: Mapping[str, float]) -> Outcome:
    """What a line of metrics.jsonl says of an update's outcome; its generated tokens are exact, left to right and
    without a pilot.

    The line holds means over all groups, not which of them were mixed, so that with several groups a prompt the
    replayed states are an estimate.
    """
    forks = [metrics["fork/step"] for _ in _algorithm(recipe).windows]
    return _expected(recipe, forks, metrics["groups/mixed"])


def _expected(recipe: Recipe, forks: list[float], mixed: float, changed: float = 1.0) -> Outcome:
    size, pilot = recipe.algorithm.group_size, getattr(recipe.algorithm, "pilot", None)
    return Outcome.expected(recipe.trainer.prompts_per_step, size, [0.0, *forks], mixed, changed, pilot)


def forward_flops(config: Any, length: int, scored: float) -> float:
    """Floating-point operations, two a multiplication and addition, of one state through the model.

    Args:
        config: LLaDA's or Dream's.
        length: T, prompt and response.
        scored: positions that the last layer's queries and MLP and the head are run for.
    """
    d, inner = config.hidden_size, config.intermediate_size
    kv = d // config.num_attention_heads * config.num_key_value_heads
    keys_values = 2 * d * kv  # multiplications a position
    rest = 2 * d * d + 3 * d * inner  # queries, output projection, gated MLP
    attention = 2 * length * d  # a query: scores and weighted values
    layer = length * (keys_values + rest + attention)
    last = length * keys_values + scored * (rest + attention)
    return 2 * ((config.num_hidden_layers - 1) * layer + last + scored * d * config.width)


def _algorithm(recipe: Recipe) -> Algorithm:
    return ALGORITHMS[recipe.algorithm.name](recipe.algorithm, recipe.objective)
