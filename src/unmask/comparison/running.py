"""Train every recipe with every seed: read what is done, continue what was interrupted, refuse what is another's."""

import json
import math
import shutil
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from unmask import runs
from unmask.comparison.budget import Budget
from unmask.comparison.curves import read_curve
from unmask.comparison.result import ComparedRun, Comparison, write, write_json
from unmask.config import dump, load_recipe
from unmask.errors import UnmaskError
from unmask.models.files import one_line
from unmask.models.loading import find
from unmask.training import distributed
from unmask.training.checkpoint import latest_checkpoint
from unmask.training.metrics import MetricsFile
from unmask.training.recipe import Recipe, RunSettings
from unmask.training.trainer import Listener
from unmask.writing import replace_text

ONLY_BEFORE_AND_AFTER = 10**9
"""`evaluation.every` of a recipe that says never: farther than any run goes."""


class Watcher(Protocol):
    """Whoever shows people how far a comparison is."""

    def begin(self, recipe: str, seed: int) -> Listener:
        """A run is about to train; the answer is told about its steps."""

    def end(self, run: ComparedRun) -> None:
        """A run is done, was done before, or failed."""


def compare(
    recipes: Iterable[str],
    seeds: int = 3,
    *,
    tokens: int | None = None,
    minutes: float | None = None,
    output: str | Path = "runs/comparison",
    overrides: Iterable[str] = (),
    watcher: Watcher | None = None,
) -> Comparison:
    """Train every recipe with the seeds 0..seeds-1, and write what came of it.

    The folder then holds `comparison.md` (the table), `comparison.json` (all numbers), `curves.csv`, `curves.svg` and
    every run, e.g. `tiny-forkgrpo/seed-0/`. The same call continues a comparison that was interrupted, and adds seeds
    or recipes to one that is done. A recipe that fails is named in the table, and the others go on.

    Args:
        recipes: paths of YAML files or names of shipped recipes, with the same task, model and evaluation.
        tokens: a run ends after the first step at which it has generated as many.
        minutes: or after the first step at which it has trained as long. Without either, after `trainer.steps`.
        output: the comparison's folder.
        overrides: `key=value` pairs for all recipes, e.g. `trainer.prompts_per_step=16`.

    Raises:
        UnmaskError: bad input, or a folder made with another recipe or budget; nothing has been written.
    """
    names, overrides, budget, folder = tuple(recipes), tuple(overrides), Budget(tokens, minutes), Path(output)
    if distributed.start().size > 1:
        raise UnmaskError("compare runs in one process; start it without torchrun")
    if seeds < 1:
        raise UnmaskError(f"seeds={seeds}: use at least 1")
    chosen = _load(names, overrides)
    _check_folder(folder, budget)
    plan = [
        (name, seed, _recipe_of_run(recipe, seed, folder / runs.folder_name(name) / f"seed-{seed}"))
        for name, recipe in chosen.items()
        for seed in range(seeds)
    ]
    for _, _, recipe in plan:
        _check_run(recipe, budget)
    first = chosen[names[0]]
    data = runs.build_task(first.task, ONLY_BEFORE_AND_AFTER).evaluation()
    if first.model.scratch is None:
        find(first.model.name)
    examples = min(first.evaluation.examples or len(data), len(data))
    comparison = Comparison(folder, names, seeds, budget, overrides, first.task.name, first.model.name, examples)
    write_json(comparison)
    for name, seed, recipe in plan:
        if any(run.recipe == name for run in comparison.failures):
            continue
        run = _run(name, seed, recipe, budget, watcher)
        comparison.runs.append(run)
        write_json(comparison)
        if watcher is not None:
            watcher.end(run)
    write(comparison)
    return comparison


def _load(names: Sequence[str], overrides: Sequence[str]) -> dict[str, Recipe]:
    """The recipes by name, which agree in all that a comparison needs."""
    if not names:
        raise UnmaskError("compare: name at least one recipe (see `unmask recipes`)")
    for override in overrides:
        key = override.split("=")[0]
        if key == "seed" or key.split(".")[0] == "run":
            raise UnmaskError(f"override {override!r}: compare chooses seeds and folders; use --seeds and --output")
    folders: dict[str, str] = {}
    for name in names:
        other = folders.setdefault(runs.folder_name(name), name)
        if list(names).count(name) > 1:
            raise UnmaskError(f"recipe {name}: given twice")
        if other != name:
            raise UnmaskError(f"recipe {name}: its runs would be called as those of {other}; rename one of the files")
    chosen = {name: load_recipe(name, tuple(overrides), Recipe) for name in names}
    first, *others = names
    # how often a run is evaluated on its way changes none of its numbers
    compared: Any = {"task": True, "model": True, "evaluation": {"examples", "decoding"}}
    shared = {name: recipe.model_dump(mode="json", include=compared) for name, recipe in chosen.items()}
    for name in others:
        difference = _difference(shared[first], shared[name])
        if difference is not None:
            key, one, other = difference
            raise UnmaskError(
                f"recipe {name}: {key}={other}, but {one} in {first}; recipes are compared on the same task, model "
                "and evaluation (key=value changes all of them)"
            )
    return chosen


def _recipe_of_run(recipe: Recipe, seed: int, run: Path) -> Recipe:
    every = recipe.evaluation.every or ONLY_BEFORE_AND_AFTER
    evaluation = recipe.evaluation.model_copy(update={"every": every})
    return recipe.model_copy(update={"seed": seed, "run": RunSettings(dir=str(run)), "evaluation": evaluation})


def _check_folder(folder: Path, budget: Budget) -> None:
    """The folder is new, or a comparison's with the same budget."""
    if folder.exists() and not folder.is_dir():
        raise UnmaskError(f"--output {folder}: is a file; name a folder")
    file = folder / "comparison.json"
    if not file.exists():
        if folder.exists() and any(folder.iterdir()):
            raise UnmaskError(f"--output {folder}: holds something else than a comparison; name another folder")
        return
    try:
        made = json.loads(file.read_text())
        before = Budget(made["tokens"], made["minutes"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UnmaskError(f"{file}: cannot be read; name another folder with --output") from error
    if before != budget:
        raise UnmaskError(f"{folder}: made with {before}, not {budget}; name another folder with --output")


def _check_run(recipe: Recipe, budget: Budget) -> None:
    """The run's folder is new, or was made by this recipe within this budget."""
    run = _folder(recipe)
    if not (run / "recipe.yaml").exists():
        if run.exists():
            raise UnmaskError(f"{run}: not a run (no recipe.yaml in it); remove it or name another folder")
        return
    made = load_recipe(str(run / "recipe.yaml"), (), Recipe).model_copy(update={"run": recipe.run})
    if budget.is_limit:
        made = made.model_copy(update={"trainer": made.trainer.model_copy(update={"steps": recipe.trainer.steps})})
    difference = _difference(made.model_dump(mode="json"), recipe.model_dump(mode="json"))
    if difference is not None:
        key, before, now = difference
        raise UnmaskError(f"{run}: made with {key}={before}, not {now}; name another folder with --output")
    last, done = _last_step(recipe, budget), _steps_done(run)
    if last is not None and done > last:
        raise UnmaskError(f"{run}: trained beyond {budget}, to step {done}; remove it or name another folder")


def _difference(one: dict[str, Any], other: dict[str, Any], above: str = "") -> tuple[str, str, str] | None:
    """The first dotted key in which two nested mappings differ, with both values; an absent one is `none`."""
    for key in {**one, **other}:
        left, right = one.get(key), other.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            inner = _difference(left, right, f"{above}{key}.")
            if inner is not None:
                return inner
        elif left != right:
            return f"{above}{key}", _shown(left), _shown(right)
    return None


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _run(name: str, seed: int, recipe: Recipe, budget: Budget, watcher: Watcher | None) -> ComparedRun:
    """Bring a run to its end, and read what came of it."""
    run, problem = _folder(recipe), None
    report = run.with_name(f"{run.name}-error.txt")
    try:
        if not _is_finished(recipe, budget):
            _train(recipe, budget, [_forecast(watcher.begin(name, seed), run, budget)] if watcher else [])
        if budget.is_limit:  # so that the recipe in the folder repeats the run
            steps = recipe.trainer.model_copy(update={"steps": _steps_done(run)})
            kept = recipe.model_copy(update={"run": RunSettings(), "trainer": steps})
            replace_text(run / "recipe.yaml", dump(kept))
        report.unlink(missing_ok=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted at {name}, seed {seed}; the same command continues") from None
    except UnmaskError as error:
        problem = one_line(error)
    except Exception as error:  # a border: a bug or a full memory in one recipe must not lose the others
        run.parent.mkdir(parents=True, exist_ok=True)
        replace_text(report, traceback.format_exc())
        problem = f"{type(error).__name__}: {one_line(error)} (see {report})"
    metrics = MetricsFile(run / "metrics.jsonl").read()
    return ComparedRun(
        recipe=name,
        seed=seed,
        folder=run,
        steps=len(metrics),
        tokens=int(metrics[-1]["tokens/generated_total"]) if metrics else 0,
        seconds=sum(line["time/step"] for line in metrics),
        curve=read_curve(run),
        error=problem,
    )


def _train(recipe: Recipe, budget: Budget, listeners: list[Listener]) -> None:
    """A run from its last checkpoint; from its beginning where there is none."""
    run, is_over = _folder(recipe), budget.is_spent if budget.is_limit else None
    if _steps_done(run):
        runs.resume(run, listeners=listeners, is_over=is_over)
    else:
        shutil.rmtree(run, ignore_errors=True)
        runs.train(recipe, listeners=listeners, is_over=is_over)


def _forecast(listener: Listener, run: Path, budget: Budget) -> Listener:
    """Pass on a run's metrics with the steps that its budget is likely to last."""
    if not budget.is_limit:
        return listener
    seconds = 0.0

    def tell(metrics: dict[str, float], steps: int) -> None:
        nonlocal seconds
        if "time/step" in metrics:
            seconds += metrics["time/step"]
            share = budget.share(metrics["tokens/generated_total"], seconds)
            steps = math.ceil(metrics["step"] / min(share, 1))
        else:  # before the first step: a run that goes on has spent some already
            seconds = sum(line["time/step"] for line in MetricsFile(run / "metrics.jsonl").read())
        listener(metrics, steps)

    return tell


def _folder(recipe: Recipe) -> Path:
    assert recipe.run.dir is not None
    return Path(recipe.run.dir)


def _is_finished(recipe: Recipe, budget: Budget) -> bool:
    """Whether the run's last checkpoint is that of its last step, and was evaluated."""
    done, curve = _steps_done(_folder(recipe)), read_curve(_folder(recipe))
    return bool(curve) and _last_step(recipe, budget) == done == curve[-1].step


def _steps_done(run: Path) -> int:
    """The step of the newest checkpoint; 0 = none."""
    if not (run / "checkpoints").is_dir():
        return 0
    try:
        return int(latest_checkpoint(run).name.removeprefix("step-"))
    except UnmaskError:
        return 0


def _last_step(recipe: Recipe, budget: Budget) -> int | None:
    """The step with which the run ends; none while its metrics do not tell."""
    if not budget.is_limit:
        return recipe.trainer.steps
    seconds = 0.0
    for line in MetricsFile(_folder(recipe) / "metrics.jsonl").read():
        seconds += line["time/step"]
        if budget.share(line["tokens/generated_total"], seconds) >= 1:
            return int(line["step"])
    return None
