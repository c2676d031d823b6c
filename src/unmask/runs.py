"""Start or continue a run: recipe → model, folder, trainer. The commands and `unmask.train` end here."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
import yaml

from unmask.config import apply_override, dump, load_recipe, validate
from unmask.errors import UnmaskError
from unmask.evaluation import evaluate
from unmask.models import Denoiser, add_lora, load, save
from unmask.models.scratch import build
from unmask.randomness import name_seed
from unmask.training import distributed
from unmask.training.checkpoint import latest_checkpoint, read_state
from unmask.training.metrics import MetricsFile, replace_text
from unmask.training.recipe import ModelSettings, Recipe, SftRecipe
from unmask.training.sft import supervised_training
from unmask.training.trainer import Listener, Trainer


@dataclass(frozen=True)
class Result:
    """A finished run."""

    run: Path
    """Its folder."""
    model: Denoiser
    tokenizer: Any
    metrics: list[dict[str, float]]
    """The metrics of every step, as in `metrics.jsonl`."""
    evaluations: list[dict[str, float]]
    """Step and accuracy of every evaluation, as in `evaluations.jsonl`; step 0 is the model before training."""


def train(
    recipe: str | Recipe,
    overrides: Iterable[str] = (),
    *,
    listeners: Iterable[Listener] = (),
    name: str | None = None,
) -> Result:
    """Run a reinforcement learning recipe from its beginning.

    Args:
        recipe: path of a YAML file, name of a shipped recipe, or a validated recipe.
        overrides: `key=value` pairs, e.g. `trainer.steps=20`.
        listeners: called with the metrics of every step.
        name: the run's name under `runs/` when the recipe has no `run.dir`; the recipe's name when left out.

    Raises:
        UnmaskError: bad input; nothing has been written.
    """
    if isinstance(recipe, str):
        name = name or recipe
        recipe = load_recipe(recipe, tuple(overrides), Recipe)
    elif overrides := tuple(overrides):
        raise UnmaskError(f"overrides {overrides}: only with a recipe given by name; change the recipe itself")
    world = distributed.start()
    if recipe.trainer.prompts_per_step < world.size:
        raise UnmaskError(
            f"trainer.prompts_per_step={recipe.trainer.prompts_per_step}: fewer than the {world.size} workers; "
            f"use at least {world.size}"
        )
    # the main worker decides, for all of them, before anybody creates anything
    chosen = choose_folder(recipe.run.dir, name or recipe.algorithm.name) if world.is_main else None
    run = Path(str(world.gather(chosen)[0]))
    task = recipe.task.build()
    model, tokenizer = _load(recipe.model, recipe.seed)
    recipe = recipe.model_copy(update={"run": recipe.run.model_copy(update={"dir": str(run)})})
    if world.is_main:
        _create(run, dump(recipe))
    world.barrier()
    return _run(Trainer(recipe, run, model, tokenizer, task, world, list(listeners) if world.is_main else []))


def resume(run: str | Path, overrides: Iterable[str] = (), *, listeners: Iterable[Listener] = ()) -> Result:
    """Continue a run from its newest checkpoint, as if it had never stopped.

    Args:
        overrides: may change what does not alter the steps already done, e.g. `trainer.steps=200`.
    """
    run, overrides = Path(run), tuple(overrides)
    file = run / "recipe.yaml"
    if not file.is_file():
        raise UnmaskError(f"{run}: not a run (no recipe.yaml in it)")
    data = yaml.safe_load(file.read_text())
    for override in overrides:
        apply_override(data, override)
    recipe = validate(data, Recipe, f"recipe {file}")
    checkpoint = latest_checkpoint(run)
    read_state(checkpoint, recipe)  # before a weight is loaded
    task = recipe.task.build()
    world = distributed.start()
    model, tokenizer = load(str(checkpoint), dtype=recipe.model.dtype, device=str(distributed.device()), check=False)
    _prepare(model, recipe.model)
    if world.is_main and overrides:
        replace_text(file, dump(recipe))
    trainer = Trainer(recipe, run, model, tokenizer, task, world, list(listeners) if world.is_main else [])
    trainer.resume(checkpoint)
    return _run(trainer)


def supervise(recipe: str, overrides: Iterable[str] = (), *, listeners: Iterable[Listener] = ()) -> Result:
    """Run a supervised recipe; the model is saved in the run's folder under `model/`."""
    settings = load_recipe(recipe, tuple(overrides), SftRecipe)
    if distributed.start().size > 1:
        raise UnmaskError("sft runs in one process; start it without torchrun")
    run = choose_folder(settings.run.dir, recipe)
    task = settings.task.build()
    model, tokenizer = _load(settings.model, settings.seed)
    settings = settings.model_copy(update={"run": settings.run.model_copy(update={"dir": str(run)})})
    _create(run, dump(settings))
    metrics, evaluations = MetricsFile(run / "metrics.jsonl"), MetricsFile(run / "evaluations.jsonl")

    def report(values: dict[str, float]) -> None:
        every = settings.evaluation.every
        if every and (values["step"] % every == 0 or values["step"] == settings.sft.steps):
            result = evaluate(
                model,
                tokenizer,
                task,
                settings.evaluation.decoding,
                examples=settings.evaluation.examples,
                seed=settings.seed,
            )
            values = {**values, "eval/accuracy": result.accuracy}
            evaluations.write({"step": values["step"], "accuracy": result.accuracy})
        metrics.write(values)
        for listener in listeners:
            listener(values, settings.sft.steps)

    supervised_training(model, tokenizer, task, settings.sft, settings.optimizer, seed=settings.seed, report=report)
    save(model, tokenizer, run / "model")
    return Result(run, model, tokenizer, metrics.read(), evaluations.read())


def choose_folder(given: str | None, name: str) -> Path:
    """The folder of a new run: the one asked for, else the first free of `runs/<name>`, `runs/<name>-2`, ...

    Raises:
        UnmaskError: the folder asked for already holds something.
    """
    if given is not None:
        run = Path(given)
        if run.is_file():
            raise UnmaskError(f"run.dir={given}: is a file; name a folder")
        if (run / "recipe.yaml").exists():
            raise UnmaskError(
                f"run.dir={given}: holds another run; continue it with `unmask train --resume {given}` "
                "or name another folder"
            )
        if run.exists() and any(run.iterdir()):
            raise UnmaskError(f"run.dir={given}: is not empty; name a new folder")
        return run
    base = Path("runs") / Path(name).with_suffix("").as_posix().replace("/", "-").strip(".-")
    run, number = base, 2
    while run.exists():
        run, number = base.with_name(f"{base.name}-{number}"), number + 1
    return run


def _load(settings: ModelSettings, seed: int) -> tuple[Denoiser, Any]:
    if settings.scratch is not None:
        new, characters = build(settings.scratch, seed)
        return new.to(distributed.device()), characters  # type: ignore[arg-type]  # `to` is wrapped without its types
    model, tokenizer = load(settings.name, dtype=settings.dtype, device=str(distributed.device()))
    if settings.lora is not None:
        with torch.random.fork_rng():
            torch.manual_seed(name_seed(seed, "lora"))  # adapters begin alike in every run and on every worker
            # a PeftModel passes on everything that a denoiser is asked for
            model = cast(Denoiser, add_lora(model, settings.lora))
    _prepare(model, settings)
    return model, tokenizer


def _prepare(model: Denoiser, settings: ModelSettings) -> None:
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable()


def _create(run: Path, recipe: str) -> None:
    run.mkdir(parents=True, exist_ok=True)
    replace_text(run / "recipe.yaml", recipe)


def _run(trainer: Trainer) -> Result:
    with _terminated_like_interrupted():
        trainer.train()
    return Result(trainer.run, trainer.model, trainer.tokenizer, trainer.metrics.read(), trainer.evaluations.read())


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """A cluster's SIGTERM leaves a resumable run, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
