"""Thinned replays: the squared error of the gradient, against a replay of all states, on the shipped model.

One batch of ForkGRPO rollouts on 4×4 sudoku, groups of 8; its gradient |g|² is the unit. For every draw the squared
distance to g, averaged over `--draws` draws (± standard error), and the states that were run.

uniform_*, confidence_*  mean squared error over |g|² at a share ρ of the states; 0 is exact
confidence               confidence at ρ = 0.1 over uniform at ρ = 0.25; at most 1 means fewer states and no more noise
sparse_*                 sparse branch replay, ρ of its states by confidence
sparse_alone             the same, ρ = 1, if in the states that are run only the drawn responses' tokens are scored,
                         times what these stand for, and not those of all responses that pass through
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from common import report
from torch import Tensor

from unmask.algorithms import Experience, ForkGRPO, ForkGRPOSettings, Prompts
from unmask.config import load_recipe
from unmask.credit import group_advantage
from unmask.decoding import Follow, Rollout, sample
from unmask.models import Denoiser, load
from unmask.objectives import ObjectiveSettings
from unmask.randomness import derive
from unmask.replay import Replay, StateDraw, one_of_each_class
from unmask.tasks import Sudoku
from unmask.tasks.rendering import prompt_batch, response_text
from unmask.training.recipe import Recipe

PROMPTS = 8
SHARES = (0.1, 0.25, 0.5)
DRAWS: tuple[StateDraw, ...] = ("uniform", "confidence")


@dataclass
class SudokuActor:
    """The shipped model at work on sudoku, alone (what `algorithms.Actor` promises)."""

    model: Denoiser
    tokenizer: object
    recipe: Recipe
    task: Sudoku
    reward_range: float = 1.0
    end_token_id: int = -1

    def sample(
        self,
        prompts: Prompts,
        prompt: Tensor,
        key: Tensor,
        group: Tensor,
        given_ids: Tensor | None = None,
        is_given: Tensor | None = None,
        follow: Follow | None = None,
    ) -> Rollout:
        ids, mask = prompts.ids[prompt], prompts.mask[prompt]
        return sample(self.model, ids, mask, self.recipe.decoding, key, prompt=prompt, group=group, follow=follow)

    def reward(self, prompts: Prompts, rollout: Rollout) -> Tensor:
        texts = response_text(self.tokenizer, rollout.response_ids)
        examples = [prompts.examples[index] for index in rollout.prompt.tolist()]
        rewards = [judgement.reward for judgement in self.task.judge_all(examples, texts)]
        return torch.tensor(rewards).to(rollout.logprob)

    def total(self, value: float) -> float:
        return value

    def gather(self, rows: Tensor) -> tuple[Tensor, int]:
        return rows, 0


def settings_of(
    recipe: Recipe, share: float = 1.0, draw: StateDraw = "uniform", sparse: bool = False
) -> ForkGRPOSettings:
    settings = recipe.algorithm
    assert isinstance(settings, ForkGRPOSettings)
    return settings.model_copy(update={"state_share": share, "state_draw": draw, "sparse_replay": sparse})


def drawn_alone(experience: Experience) -> Experience:
    """With credit only for the responses that sparse replay draws, times the size of their class."""
    group = experience.rollout.group
    draw = one_of_each_class(group_advantage(experience.reward, group), group, experience.key)
    weight = torch.where(draw.is_drawn, 1 / draw.chance, 0).to(experience.credit).unsqueeze(-1)
    within, along = experience.credit.unbind(-1)
    return replace(experience, credit=torch.stack([within * weight, along], dim=-1))


@dataclass
class Thinnings:
    """Replays of the same rollouts, each of them drawn over and over."""

    actor: SudokuActor
    experience: Experience
    draws: int

    def __post_init__(self) -> None:
        self.expected, _ = self.gradient(self.experience, settings_of(self.actor.recipe))

    def gradient(self, experience: Experience, settings: ForkGRPOSettings) -> tuple[Tensor, int]:
        """The flat gradient of one update, and the states run for it."""
        (plan,) = ForkGRPO(settings, ObjectiveSettings()).replay(experience, self.actor, 1)
        model, temperature = self.actor.model, self.actor.recipe.decoding.temperature
        replay = Replay(model, experience.rollout, temperature=temperature, batch_tokens=4096)
        replay.accumulate(plan.states, plan.objective)
        found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).double()
        model.zero_grad(set_to_none=True)
        return found, len(plan.states)

    def error(self, name: str, settings: ForkGRPOSettings, *, alone: bool = False) -> float:
        """Mean squared error of the thinned gradient; printed with its standard error."""
        errors, states = torch.zeros(self.draws).double(), 0
        for number in range(self.draws):
            drawn = replace(self.experience, key=derive(self.experience.key, number))
            found, count = self.gradient(drawn_alone(drawn) if alone else drawn, settings)
            errors[number] = (found - self.expected).square().sum() / self.expected.square().sum()
            states += count
        mean, deviation = errors.mean().item(), errors.std().item() / self.draws**0.5
        print(f"{name:<16}{states / self.draws:>8.0f}{mean:>9.3f}{deviation:>8.3f}")
        return mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draws", type=int, default=30)
    arguments = parser.parse_args()
    model, tokenizer = load("tiny", dtype="float32")
    recipe = load_recipe("ablations/groups_of_8", [], Recipe)
    task = Sudoku()
    actor = SudokuActor(model, tokenizer, recipe, task)
    examples = tuple(task.train()[index] for index in range(PROMPTS))
    ids, mask = prompt_batch(task, examples, tokenizer)
    prompts = Prompts(ids, mask, derive(torch.arange(PROMPTS), 0), examples)
    whole = settings_of(recipe)
    thinnings = Thinnings(actor, ForkGRPO(whole, ObjectiveSettings()).collect(prompts, actor), arguments.draws)

    print(f"{'':<16}{'states':>8}{'error':>9}{'±':>8}")
    result: dict[str, float] = {}
    for draw in DRAWS:
        for share in SHARES:
            result[f"{draw}_{share}"] = thinnings.error(f"{draw}_{share}", settings_of(recipe, share, draw))
    result["sparse_alone"] = thinnings.error("sparse_alone", whole, alone=True)
    for share in (1.0, 0.35, 0.25):
        name = f"sparse_{share:g}"
        result[name] = thinnings.error(name, settings_of(recipe, share, "confidence", sparse=True))
    result["confidence"] = result["confidence_0.1"] / result["uniform_0.25"]
    report(result, arguments.json)


if __name__ == "__main__":
    main()
