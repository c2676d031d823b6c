"""State subsampling: the squared error of the gradient, against a replay of all states, on the shipped model.

One batch of ForkGRPO rollouts on 4×4 sudoku; its gradient |g|² is the unit. For every draw of states the squared
distance to g, averaged over `--draws` draws (± standard error). Also the seconds of a replay, over those of a full one.

uniform_*, confidence_*  mean squared error over |g|² at a share ρ of the states; 0 is exact
confidence               confidence at ρ = 0.1 over uniform at ρ = 0.25; at most 1 means fewer states and no more noise
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from common import report
from torch import Tensor

from unmask.algorithms import Experience, ForkGRPO, ForkGRPOSettings, Prompts
from unmask.config import load_recipe
from unmask.decoding import Follow, Rollout, sample
from unmask.models import Denoiser, load
from unmask.objectives import ObjectiveSettings
from unmask.randomness import derive
from unmask.replay import Replay, StateDraw
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


def settings_of(recipe: Recipe, share: float, draw: StateDraw) -> ForkGRPOSettings:
    settings = recipe.algorithm
    assert isinstance(settings, ForkGRPOSettings)
    return settings.model_copy(update={"state_share": share, "state_draw": draw})


def gradient(actor: SudokuActor, experience: Experience, settings: ForkGRPOSettings) -> Tensor:
    """The flat gradient of one update."""
    (plan,) = ForkGRPO(settings, ObjectiveSettings()).replay(experience, actor, 1)
    decoding = actor.recipe.decoding
    replay = Replay(actor.model, experience.rollout, temperature=decoding.temperature, batch_tokens=4096)
    replay.accumulate(plan.states, plan.objective)
    found = torch.cat([p.grad.flatten() for p in actor.model.parameters() if p.grad is not None]).double()
    actor.model.zero_grad(set_to_none=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draws", type=int, default=30)
    arguments = parser.parse_args()
    model, tokenizer = load("tiny", dtype="float32")
    recipe = load_recipe("tiny/forkgrpo", [], Recipe)
    task = Sudoku()
    actor = SudokuActor(model, tokenizer, recipe, task)
    examples = tuple(task.train()[index] for index in range(PROMPTS))
    ids, mask = prompt_batch(task, examples, tokenizer)
    prompts = Prompts(ids, mask, derive(torch.arange(PROMPTS), 0), examples)
    whole = settings_of(recipe, 1.0, "uniform")
    experience = ForkGRPO(whole, ObjectiveSettings()).collect(prompts, actor)

    began = time.perf_counter()
    expected = gradient(actor, experience, whole)
    full_seconds = time.perf_counter() - began
    result: dict[str, float] = {}
    print(f"{'':<12}{'share':>6}{'error':>9}{'±':>8}{'seconds':>9}")
    for draw in DRAWS:
        for share in SHARES:
            errors, began = [], time.perf_counter()
            for number in range(arguments.draws):
                drawn = replace(experience, key=derive(experience.key, number))
                found = gradient(actor, drawn, settings_of(recipe, share, draw))
                errors.append(((found - expected).square().sum() / expected.square().sum()).item())
            seconds = (time.perf_counter() - began) / arguments.draws / full_seconds
            error = torch.tensor(errors)
            result[f"{draw}_{share}"] = error.mean().item()
            print(f"{draw:<12}{share:>6}{error.mean():>9.3f}{error.std() / len(error) ** 0.5:>8.3f}{seconds:>9.2f}")
    result["confidence"] = result["confidence_0.1"] / result["uniform_0.25"]
    report(result, arguments.json)


if __name__ == "__main__":
    main()
