"""Start or continue a run: recipe → model, folder, trainer. The commands and `unmask.train` end here."""

import copy
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import BaseModel

from unmask.config import dump, load_recipe
from unmask.errors import UnmaskError
from unmask.evaluation import evaluate
from unmask.models import Denoiser, add_lora, load, save
from unmask.models.files import one_line
from unmask.models.scratch import build
from unmask.randomness import name_seed
from unmask.tasks import Task
from unmask.training import distributed
from unmask.training.checkpoint import latest_checkpoint, read_state
from unmask.training.metrics import MetricsFile
from unmask.training.recipe import ModelSettings, Recipe, RunSettings, SftRecipe
from unmask.training.sft import supervised_batch, supervised_training
from unmask.training.trainer import IsOver, Listener, Trainer
from unmask.writing import replace_text


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
    is_over: IsOver | None = None,
) -> Result:
    """Run a reinforcement learning recipe from its beginning.

    Args:
        recipe: path of a YAML file, name of a shipped recipe, or a validated recipe.
        overrides: `key=value` pairs, e.g. `trainer.steps=20`.
        listeners: called with the metrics of every step.
        name: the run's name under `runs/` when the recipe has no `run.dir`; the recipe's name when left out.
        is_over: ends the run in place of `trainer.steps`, e.g. `lambda trainer: trainer.tokens_generated >= 10**6`.

    Raises:
        UnmaskError: bad input; nothing has been written.
    """
    if isinstance(recipe, str):
        name = name or recipe
        recipe = load_recipe(recipe, tuple(overrides), Recipe)
    elif overrides := tuple(overrides):
        raise UnmaskError(f"overrides {overrides}: only with a recipe given by name; change the recipe itself")
    world = _workers(recipe)
    # the main worker decides, for all of them, before anybody creates anything
    chosen = choose_folder(recipe.run.dir, name or recipe.algorithm.name) if world.is_main else None
    run = Path(str(world.gather(chosen)[0]))
    task = build_task(recipe.task, recipe.evaluation.every)
    model, tokenizer = _load(recipe.model, recipe.seed)
    reference = copy.deepcopy(model) if _keeps_reference(recipe) else None
    trainer = _trainer(recipe, run, model, tokenizer, task, world, listeners, is_over, reference)
    if world.is_main:
        _create(run, recipe)
    world.barrier()
    try:
        return _run(trainer)
    except Exception:
        # a folder without a step would be in the way of the next try, and cannot be resumed
        if trainer.step == 0 and world.is_main:
            shutil.rmtree(run, ignore_errors=True)
        raise


def resume(
    run: str | Path,
    overrides: Iterable[str] = (),
    *,
    listeners: Iterable[Listener] = (),
    is_over: IsOver | None = None,
) -> Result:
    """Continue a run from its newest checkpoint, as if it had never stopped.

    Args:
        overrides: may change what does not alter the steps already done, e.g. `trainer.steps=200`.
        is_over: ends the run in place of `trainer.steps`, as in `train`.
    """
    run, overrides = Path(run), tuple(overrides)
    file = run / "recipe.yaml"
    if not file.is_file():
        raise UnmaskError(f"{run}: not a run (no recipe.yaml in it)")
    if any(override.startswith("run.") for override in overrides):
        raise UnmaskError(f"{run}: a run stays in its folder; leave run.* out when resuming")
    recipe = load_recipe(str(file), overrides, Recipe)
    checkpoint = latest_checkpoint(run)
    done = read_state(checkpoint, recipe)["step"]  # before a weight is loaded
    if is_over is None and recipe.trainer.steps < done:
        raise UnmaskError(f"{run}: trainer.steps={recipe.trainer.steps}, but {done} steps are done; use more")
    world = _workers(recipe)
    task = build_task(recipe.task, recipe.evaluation.every)
    model, tokenizer = load(str(checkpoint), dtype=_dtype(recipe.model), device=str(distributed.device()), check=False)
    _prepare(model, recipe.model)
    reference = _load(recipe.model, recipe.seed)[0] if _keeps_reference(recipe) else None
    trainer = _trainer(recipe, run, model, tokenizer, task, world, listeners, is_over, reference)
    trainer.resume(checkpoint)
    if world.is_main and overrides:
        replace_text(file, dump(recipe))
    return _run(trainer)


def supervise(recipe: str, overrides: Iterable[str] = (), *, listeners: Iterable[Listener] = ()) -> Result:
    """Run a supervised recipe; the model is saved in the run's folder under `model/`, at the end."""
    settings = load_recipe(recipe, tuple(overrides), SftRecipe)
    if distributed.start().size > 1:
        raise UnmaskError("sft runs in one process; start it without torchrun")
    run = choose_folder(settings.run.dir, recipe)
    task = build_task(settings.task, settings.evaluation.every)
    model, tokenizer = _load(settings.model, settings.seed)
    supervised_batch(task, tokenizer, settings.sft, settings.seed, 1)  # finds solutions that do not fit
    _create(run, settings)
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
    base = Path("runs") / folder_name(name)
    run, number = base, 2
    while run.exists():
        run, number = base.with_name(f"{base.name}-{number}"), number + 1
    return run


def folder_name(recipe: str) -> str:
    """What a recipe's runs are called: `tiny-forkgrpo` for `tiny/forkgrpo`; a file's name, or its run's, for a path."""
    path = Path(recipe)
    if path.suffix:
        recipe = path.resolve().parent.name if path.stem == "recipe" else path.stem
    return recipe.replace("/", "-")


def _load(settings: ModelSettings, seed: int) -> tuple[Denoiser, Any]:
    if settings.scratch is not None:
        new, characters = build(settings.scratch, seed)
        return new.to(distributed.device()), characters  # type: ignore[arg-type]  # `to` is wrapped without its types
    model, tokenizer = load(settings.name, dtype=_dtype(settings), device=str(distributed.device()))
    if settings.lora is not None:
        device = distributed.device()
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(name_seed(seed, "lora"))  # adapters begin alike in every run and on every worker
            # a PeftModel passes on everything that a denoiser is asked for
            model = cast(Denoiser, add_lora(model, settings.lora))
    _prepare(model, settings)
    return model, tokenizer


def _keeps_reference(recipe: Recipe) -> bool:
    """Whether a frozen copy of the starting weights is needed; with an adapter the model itself can play the part."""
    objective = recipe.objective
    return bool(objective.kl_weight) and objective.reference == "start" and recipe.model.lora is None


def _trainer(
    recipe: Recipe,
    run: Path,
    model: Denoiser,
    tokenizer: Any,
    task: Task,
    world: distributed.World,
    listeners: Iterable[Listener],
    is_over: IsOver | None,
    reference: Denoiser | None,
) -> Trainer:
    if reference is not None:
        reference.eval().requires_grad_(False)
    told = list(listeners) if world.is_main else []
    return Trainer(recipe, run, model, tokenizer, task, world, told, is_over, reference)


def _dtype(settings: ModelSettings) -> str:
    """Weights that are trained whole are float32: in 16 bits most updates would be rounded away."""
    return "float32" if settings.dtype == "auto" and settings.lora is None else settings.dtype


def _prepare(model: Denoiser, settings: ModelSettings) -> None:
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable()


def _workers(recipe: Recipe) -> distributed.World:
    world = distributed.start()
    prompts = recipe.trainer.prompts_per_step
    if prompts < world.size:
        raise UnmaskError(
            f"trainer.prompts_per_step={prompts}: fewer than the {world.size} workers; use at least {world.size}"
        )
    return world


def build_task(settings: Any, evaluation_every: int) -> Task:
    """The recipe's task.

    Raises:
        UnmaskError: it has no examples to train on, or none to evaluate on though it is to be evaluated.
    """
    task: Task = settings.build()
    if not _count(settings.name, "train", task.train):
        raise UnmaskError(f"task {settings.name}: train() gives no examples")
    if evaluation_every and not _count(settings.name, "evaluation", task.evaluation):
        raise UnmaskError(f"task {settings.name}: evaluation() gives no examples; set evaluation.every=0")
    return task


def _count(task: str, method: str, examples: Callable[[], Any]) -> int:
    """How many examples a task has."""
    try:
        return len(examples())
    except UnmaskError:
        raise
    except TypeError as error:
        raise UnmaskError(
            f"task {task}: {method}() must give examples with a length and an index, like a list: {one_line(error)}"
        ) from error
    except Exception as error:  # a border: whatever a user's task raises
        raise UnmaskError(f"task {task}: {method}() failed: {type(error).__name__}: {one_line(error)}") from error


def _create(run: Path, recipe: BaseModel) -> None:
    """Make the run's folder with its recipe, which names no folder, so that it can be run again as it is."""
    kept = recipe.model_copy(update={"run": RunSettings()})
    try:
        run.mkdir(parents=True, exist_ok=True)
        replace_text(run / "recipe.yaml", dump(kept))
    except OSError as error:
        raise UnmaskError(f"run.dir={run}: cannot be written: {error.strerror}") from error


def _run(trainer: Trainer) -> Result:
    trainer.train()
    trainer.model.eval()
    return Result(trainer.run, trainer.model, trainer.tokenizer, trainer.metrics.read(), trainer.evaluations.read())
