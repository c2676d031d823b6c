"""The training loop: sample, judge, credit, replay, step, log. It never asks which algorithm runs."""

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.algorithms import ALGORITHMS, Experience, Plan, Prompts
from unmask.decoding import Decoding, Follow, Rollout, sample
from unmask.evaluation import evaluate
from unmask.models import Denoiser, without_adapter
from unmask.objectives import TRUNCATION
from unmask.randomness import derive, name_seed
from unmask.replay import Replay, Scores, States
from unmask.tasks import Task, Verdict, judge_safely
from unmask.tasks.rendering import prompt_batch, prompt_tokens, response_text
from unmask.training.checkpoint import read_optimizer, read_state, save_checkpoint
from unmask.training.distributed import World
from unmask.training.interrupts import Interrupts
from unmask.training.metrics import MetricsFile, append_text, write_samples
from unmask.training.optimizer import build_optimizer, optimizer_step
from unmask.training.order import ExampleOrder
from unmask.training.recipe import Recipe

ERRORS_KEPT = 3
"""Errors in judging that a step's worker writes to errors.txt."""

Listener = Callable[[dict[str, float], int], None]
"""Called with a step's metrics and the number of steps of the run; first, before training, with the step alone and,
where it is known, how many of the `examples` are left out (`examples/left_out`)."""

IsOver = Callable[["Trainer"], bool]
"""Whether a run ends with the last whole step; asked of a trainer before its first step and after each."""


@dataclass
class PolicyActor:
    """The current policy at work on a task (what `algorithms.Actor` promises), with the time it took."""

    model: Denoiser
    tokenizer: Any
    task: Task
    decoding: Decoding
    world: World
    seconds: dict[str, float] = field(default_factory=lambda: {"rollout": 0.0, "reward": 0.0})
    judged: int = 0
    """Responses judged."""
    unsure: int = 0
    """Of these, those whose verdict was unsure."""
    errors: list[str] = field(default_factory=list)
    """For each response in which the task raised an error: prompt, response and traceback."""

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
        with self._timed("rollout"):
            return sample(
                self.model,
                prompts.ids[prompt],
                prompts.mask[prompt],
                self.decoding,
                key,
                prompt=prompt,
                group=group,
                given_ids=given_ids,
                is_given=is_given,
                follow=follow,
            )

    def reward(self, prompts: Prompts, rollout: Rollout) -> Tensor:
        with self._timed("reward"):
            examples = [prompts.examples[index] for index in rollout.prompt.tolist()]
            responses = response_text(self.tokenizer, rollout.response_ids)
            judgements, errors = judge_safely(self.task, examples, responses)
            for index, error in errors.items():
                told = "".join(traceback.format_exception(error))
                self.errors.append(
                    f"prompt: {self.task.prompt(examples[index])}\nresponse: {responses[index]}\n{told}\n"
                )
            self.judged += len(judgements)
            self.unsure += sum(judgement.verdict is Verdict.UNSURE for judgement in judgements)
            rewards = [judgement.reward for judgement in judgements]
            return torch.tensor(rewards, dtype=rollout.logprob.dtype, device=rollout.logprob.device)

    @property
    def reward_range(self) -> float:
        return self.task.reward_max - self.task.reward_min

    @property
    def end_token_id(self) -> int:
        return self.model.end_token_id

    def total(self, value: float) -> float:
        return self.world.total(value)

    def gather(self, rows: Tensor) -> tuple[Tensor, int]:
        parts = [part for part in self.world.gather(rows.cpu()) if isinstance(part, Tensor)]
        return torch.cat(parts).to(rows.device), sum(map(len, parts[: self.world.rank]))

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Add the time to `what`; answers are judged while others are sampled, and that is no sampling time."""
        began, others = time.perf_counter(), sum(self.seconds.values())
        yield
        inside = sum(self.seconds.values()) - others
        self.seconds[what] += time.perf_counter() - began - inside


class Trainer:
    """A run: a recipe at work on a model, in a folder.

    Args:
        run: the run's folder, which exists.
        listeners: called on the main worker.
        is_over: ends the run in place of the recipe's `trainer.steps`. It may depend on `step`, `tokens_generated` and
            `seconds` alone, which a resumed run takes over; the main worker's answer counts for all.
        reference: a frozen copy of the model before training, where the objective needs one and the model has no
            adapter to switch off.
    """

    def __init__(
        self,
        recipe: Recipe,
        run: Path,
        model: Denoiser,
        tokenizer: Any,
        task: Task,
        world: World,
        listeners: list[Listener] | None = None,
        is_over: IsOver | None = None,
        reference: Denoiser | None = None,
    ) -> None:
        self.recipe, self.run, self.world = recipe, run, world
        self.reference = reference
        self.model, self.tokenizer, self.task = model, tokenizer, task
        self.algorithm = ALGORITHMS[recipe.algorithm.name](recipe.algorithm, recipe.objective)
        self.optimizer = build_optimizer(model, recipe.optimizer)
        self.listeners = listeners or []
        self.metrics = MetricsFile(run / "metrics.jsonl")
        self.evaluations = MetricsFile(run / "evaluations.jsonl")
        self.interrupts = Interrupts()
        self.step = 0
        """Rollout batches learned from."""
        self.tokens_generated = 0
        self.seconds = 0.0
        """Time of all steps so far, evaluations not counted; on the main worker."""
        self._is_over = is_over or (lambda trainer: trainer.step >= recipe.trainer.steps)
        length = recipe.decoding.length
        self.order = ExampleOrder(
            task.train(),
            recipe.seed,
            tokens=lambda example: len(prompt_tokens(task, example, tokenizer)) + length,
            limit=recipe.trainer.max_tokens,
        )

    def resume(self, checkpoint: Path) -> None:
        """Take over the state of a checkpoint whose weights are already in the model, and forget what came after it."""
        state = read_state(checkpoint, self.recipe)
        self.step, self.tokens_generated = state["step"], state["tokens_generated"]
        read_optimizer(checkpoint, self.optimizer)
        if self.world.is_main:
            self.seconds = sum(line["time/step"] for line in self.metrics.read() if line["step"] <= self.step)
        is_over = self.is_over()
        if self.world.is_main:
            self.metrics.rewrite(lambda line: self._as_if_uninterrupted(line, is_over))
            self.evaluations.rewrite(lambda line: self._as_if_uninterrupted(line, is_over))

    def _as_if_uninterrupted(self, line: dict[str, float], is_over: bool) -> dict[str, float] | None:
        """A metrics or evaluation line as a run that never stopped would have it at this point; none = not at all."""
        step, every = line["step"], self.recipe.evaluation.every
        if step > self.step or (step == 0 and self.step == 0):  # step 0 is evaluated again when training starts
            return None
        if not every or (step % every and not (is_over and step == self.step)):
            # evaluated because it was the last step then
            return None if "accuracy" in line else {k: v for k, v in line.items() if k != "eval/accuracy"}
        return line

    def is_over(self) -> bool:
        """Whether the last step is done, the same on all workers."""
        return bool(self.world.gather(self._is_over(self))[0])

    def train(self) -> None:
        """Run all steps that are left. Ctrl-C or a termination signal leaves a checkpoint of the last whole step."""
        with self.interrupts:
            try:
                # workers that wait for one another can only stop together, between steps
                with self.interrupts.held_back() if self.world.size > 1 else nullcontext():
                    self._steps()
            except KeyboardInterrupt:
                self.interrupts.received = 0
                with self.interrupts.held_back():
                    self.checkpoint()
                raise KeyboardInterrupt(
                    f"interrupted after step {self.step}; continue with `unmask train --resume {self.run}`"
                ) from None

    def _steps(self) -> None:
        settings = self.recipe.trainer
        self.tell({"step": self.step, **self._left_out()})
        if self.step == 0 and self.recipe.evaluation.every:
            self.evaluate()
        while not self.is_over():
            if self.world.size > 1 and self.world.total(self.interrupts.received):
                raise KeyboardInterrupt
            self.update()
            if settings.checkpoint_every and self.step % settings.checkpoint_every == 0:
                self.checkpoint()
        self.checkpoint()

    def _left_out(self) -> dict[str, float]:
        """What is known of examples that are too long, before training."""
        if self.order.left_out is None:
            return {}
        return {"examples": len(self.order.examples), "examples/left_out": self.order.left_out}

    def update(self) -> None:
        """One step: *sample, judge, credit, replay, step, log*."""
        began = time.perf_counter()
        actor = PolicyActor(self.model, self.tokenizer, self.task, self.recipe.decoding, self.world)
        prompts = self.prompts(self.step + 1)
        experience = self.algorithm.collect(prompts, actor)
        # from here the step is finished whatever comes, so that the weights always belong to a whole one
        with self.interrupts.held_back():
            replay_began = time.perf_counter()
            plans = self.algorithm.replay(experience, actor, self.recipe.trainer.updates_per_rollout)
            metrics = self.learn(experience, plans)
            self.step += 1
            seconds = {
                **{f"time/{what}": value for what, value in actor.seconds.items()},
                "time/replay": time.perf_counter() - replay_began,
                "time/step": time.perf_counter() - began,
            }
            self.seconds += seconds["time/step"]
            metrics = {
                "step": self.step,
                **self.describe(experience),
                "prompts/left_out": self.order.passed_over(self.step * self.recipe.trainer.prompts_per_step),
                "reward/unsure": self.world.total(actor.unsure) / max(1.0, self.world.total(actor.judged)),
                "reward/errors": self.world.total(len(actor.errors)),
                **metrics,
                **{name: self.world.total(value) / self.world.size for name, value in experience.metrics.items()},
                **seconds,
            }
            every = self.recipe.evaluation.every
            if every and (self.step % every == 0 or self.is_over()):
                metrics["eval/accuracy"] = self.evaluate()
            errors = "".join(str(part) for part in self.world.gather("".join(actor.errors[:ERRORS_KEPT])))
            if self.world.is_main:
                self.metrics.write(metrics)
                if errors:
                    append_text(self.run / "errors.txt", f"step {self.step}\n{errors}")
                if self.recipe.trainer.samples_per_step:
                    path = self.run / "samples" / f"step-{self.step:06d}.jsonl"
                    count = self.recipe.trainer.samples_per_step
                    write_samples(path, self.task, self.tokenizer, prompts, experience, count)
                self.tell(metrics)

    def prompts(self, step: int) -> Prompts:
        """This worker's share of a step's prompts."""
        total = self.recipe.trainer.prompts_per_step
        numbers = [(step - 1) * total + index for index in self.world.share(total)]
        examples = [self.order[number] for number in numbers]
        ids, mask = prompt_batch(self.task, examples, self.tokenizer)
        key = derive(torch.tensor(name_seed(self.recipe.seed, "rollout")), torch.tensor(numbers))
        return Prompts(ids, mask, key, tuple(examples))

    def learn(self, experience: Experience, plans: list[Plan]) -> dict[str, float]:
        """Replay each plan and update the weights after it. A plan without states on any worker does not run."""
        settings = self.recipe.objective
        rollout, first = experience.rollout, plans[0].states
        metrics = {
            "states/replayed": self.world.total(first.asked),
            "states/distinct": self.world.total(len(first)),
            "tokens/replayed": self.world.total(first.tokens),
            "loss": 0.0,
            "grad_norm": 0.0,
            "kl": 0.0,
            "policy/clip_fraction": 0.0,
            "policy/mismatch": 0.0,
            "policy/effective_sample_size": 1.0,
        }
        replay = Replay(
            self.model,
            rollout,
            temperature=self.recipe.decoding.temperature,
            batch_tokens=self.recipe.trainer.batch_tokens,
            dropout_seed=name_seed(self.recipe.seed, "dropout", self.step, self.world.rank),
        )
        self.model.train()
        # what the weights before the first update think of later plans has to be known before it changes them
        later = [plan for plan in plans if plan is not plans[0] and plan.objective.uses_old]
        old = {id(plan): replay.score(plan.states) for plan in later}
        reference: dict[int, Tensor] = {}
        if settings.kl_weight and settings.reference == "start":
            with self.reference_policy() as model:
                reference = {id(plan): replay.score(plan.states, model) for plan in plans}
        for number, plan in enumerate(plans):
            if not self.world.total(len(plan.states)):
                continue
            scores, loss = replay.accumulate(
                plan.states,
                plan.objective,
                old=old.get(id(plan)),
                reference=reference.get(id(plan)),
                scale=settings.scale,
            )
            if number == 0:
                old[id(plan)] = scores.old
                metrics |= self.agreement(plan.states, scores)
            self.world.sum_gradients(self.model.parameters())
            metrics["grad_norm"] = optimizer_step(self.optimizer, self.recipe.optimizer, self.step + 1)
            metrics["loss"] = self.world.total(loss.item())
            metrics |= {name: self.mean(values) for name, values in plan.objective.measure(scores).items()}
        return metrics

    @contextmanager
    def reference_policy(self) -> Iterator[Denoiser]:
        """The model before training: the frozen copy, or the model without its adapter."""
        if self.reference is not None:
            yield self.reference
        else:
            with without_adapter(self.model):
                yield self.model

    def agreement(self, states: States, scores: Scores) -> dict[str, float]:
        """How far replay agrees with sampling, on the tokens scored where the rollout revealed them; on all scored
        tokens when there are none."""
        compared = states.is_revealed
        if not self.world.total(int(compared.sum())):
            compared = torch.ones_like(compared)
        difference = (scores.old - scores.sampled)[compared].double()
        weight = difference.exp()
        if self.recipe.objective.mismatch == "truncate":
            weight = weight.clamp(max=TRUNCATION)
        squares = self.mean(weight.square())
        return {
            "policy/mismatch": self.mean(difference.abs()),
            # of n tokens, (Σw)²/(n Σw²); 1 when all weights are equal
            "policy/effective_sample_size": self.mean(weight) ** 2 / squares if squares else 1.0,
        }

    def describe(self, experience: Experience) -> dict[str, float]:
        """The numbers of a rollout batch that every algorithm logs, over all workers."""
        rollout, reward = experience.rollout, experience.reward.double()
        mean = self.mean(reward)
        groups = int(rollout.group.max()) + 1
        best = torch.full((groups,), -math.inf, dtype=reward.dtype, device=reward.device)
        highest = best.scatter_reduce(0, rollout.group, reward, "amax")
        lowest = -best.scatter_reduce(0, rollout.group, -reward, "amax")
        prompts = int(rollout.prompt.max()) + 1
        # in the precision that rewards have: 0.9 is less in float32 than in float64
        full = experience.reward >= torch.tensor(self.task.reward_max, dtype=experience.reward.dtype)
        solved = best.new_zeros(prompts).scatter_reduce(0, rollout.prompt, full.double(), "amax")
        generated = int(self.world.total(rollout.tokens_generated))
        self.tokens_generated += generated
        return {
            "reward/mean": mean,
            "reward/std": math.sqrt(max(0.0, self.mean(reward.square()) - mean**2)),
            "reward/solved": self.mean(solved),
            "groups/mixed": self.mean((highest > lowest).double()),
            "tokens/generated": generated,
            "tokens/generated_total": self.tokens_generated,
            "tokens/saved": int(self.world.total(rollout.tokens_saved)),
            "rows/forwarded": self.world.total(rollout.row_forwards),
            "rows/needed": self.world.total(rollout.rows_needed),
            "rows/occupancy": self.occupancy(rollout),
            "entropy": self.mean(rollout.entropy[rollout.trainable].double()),
        }

    def occupancy(self, rollout: Rollout) -> float:
        """Share of the batches' places that had a row in them while rows were still to come; 1 when none ever were."""
        places, filled = self.world.total(rollout.places), self.world.total(rollout.places_filled)
        return filled / places if places else 1.0

    def mean(self, values: Tensor) -> float:
        """Mean over all elements on all workers; 0 when there are none."""
        count = self.world.total(values.numel())
        return self.world.total(values.double().sum().item()) / count if count else 0.0

    def evaluate(self) -> float:
        """Accuracy now, written to `evaluations.jsonl`."""
        settings = self.recipe.evaluation
        result = evaluate(
            self.model,
            self.tokenizer,
            self.task,
            settings.decoding,
            examples=settings.examples,
            seed=self.recipe.seed,
            share=self.world.share,
        )
        accuracy = self.world.total(result.solved) / self.world.total(len(result.rewards))
        if self.world.is_main:
            self.evaluations.write(
                {"step": self.step, "accuracy": accuracy, "tokens/generated_total": self.tokens_generated}
            )
        return accuracy

    def tell(self, metrics: dict[str, float]) -> None:
        """Let the listeners know."""
        for listener in self.listeners:
            listener(metrics, self.recipe.trainer.steps)

    def checkpoint(self) -> None:
        """Write the state after the last whole step."""
        if self.world.is_main:
            save_checkpoint(
                self.run,
                self.recipe,
                self.model,
                self.tokenizer,
                self.optimizer,
                step=self.step,
                tokens_generated=self.tokens_generated,
            )
        self.world.barrier()
