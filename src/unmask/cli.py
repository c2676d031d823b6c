"""The `unmask` command. Heavy imports wait until a command needs them."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

# idle worker threads sleep instead of spinning: several processes may share the cores
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

app = typer.Typer(
    name="unmask",
    help="Reinforcement learning for diffusion language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys to change.")]


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="A YAML file or a shipped recipe, e.g. tiny/forkgrpo.")] = None,
    overrides: Overrides = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue this run from its last checkpoint.")
    ] = None,
) -> None:
    """Train a model with reinforcement learning."""
    from unmask import runs
    from unmask.console import TrainingView
    from unmask.errors import UnmaskError

    changes = list(overrides or [])
    if resume is not None:
        changes = [recipe, *changes] if recipe is not None else changes
        with TrainingView(f"resuming {resume}") as view:
            result = runs.resume(resume, changes, listeners=[view])
    elif recipe is None:
        raise UnmaskError("train: name a recipe (see `unmask recipes`) or --resume RUN")
    else:
        with TrainingView(recipe) as view:
            result = runs.train(recipe, changes, listeners=[view])
    view.finish(result)


@app.command()
def sft(
    recipe: Annotated[str, typer.Argument(help="A YAML file or a shipped recipe, e.g. tiny/sft.")],
    overrides: Overrides = None,
) -> None:
    """Masked-diffusion supervised fine-tuning, or training of a new model."""
    from unmask import runs
    from unmask.console import TrainingView

    with TrainingView(recipe) as view:
        result = runs.supervise(recipe, list(overrides or []), listeners=[view])
    view.finish(result)


@app.command("eval")
def evaluate_model(
    model: Annotated[str, typer.Argument(help="Hub name, folder, checkpoint, or `tiny`.")],
    task: Annotated[str, typer.Option(help="Task to answer: a name, or module:Class for one of your own.")],
    gen_length: Annotated[int | None, typer.Option(help="Response length in tokens.")] = None,
    steps: Annotated[int | None, typer.Option(help="Decoding steps; one token a step when left out.")] = None,
    block: Annotated[int | None, typer.Option(help="Tokens in a block; 32 when left out.")] = None,
    order: Annotated[str, typer.Option(help="left_to_right, static or dynamic.")] = "static",
    threshold: Annotated[float, typer.Option(help="Confidence for the dynamic order.")] = 0.9,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token.")] = 0.0,
    examples: Annotated[int | None, typer.Option(help="How many examples; all when left out.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Write every response and verdict here, as JSON lines.")] = None,
) -> None:
    """Accuracy of a model on a task's evaluation examples."""
    from unmask.console import evaluation_report
    from unmask.evaluation import evaluate
    from unmask.models import load

    chosen = _task(task)
    loaded = load(model)
    length = gen_length or (256 if loaded[1].chat_template else chosen.response_length)
    decoding = _decoding(length, block, order=order, steps=steps, threshold=threshold, temperature=temperature)
    result = evaluate(*loaded, chosen, decoding, examples=examples, seed=seed)
    evaluation_report(model, task, decoding, result, output)


@app.command()
def sample(
    model: Annotated[str, typer.Argument(help="Hub name, folder, checkpoint, or `tiny`.")],
    prompt: Annotated[str | None, typer.Argument(help="What to answer; an example of the task when left out.")] = None,
    task: Annotated[str, typer.Option(help="Task that the example is taken from.")] = "sudoku",
    trace: Annotated[bool, typer.Option("--trace", help="Show the response being revealed, step by step.")] = False,
    gen_length: Annotated[int | None, typer.Option(help="Response length in tokens.")] = None,
    steps: Annotated[int | None, typer.Option(help="Decoding steps; one token a step when left out.")] = None,
    block: Annotated[int | None, typer.Option(help="Tokens in a block; 32 when left out.")] = None,
    order: Annotated[str, typer.Option(help="left_to_right, static or dynamic.")] = "left_to_right",
    threshold: Annotated[float, typer.Option(help="Confidence for the dynamic order.")] = 0.9,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the draws and of the example.")] = 0,
) -> None:
    """One answer of a model."""
    from unmask.console import show_answer
    from unmask.models import load

    chosen = _task(task)
    loaded = load(model)
    length = gen_length or (256 if loaded[1].chat_template else chosen.response_length)
    decoding = _decoding(length, block, order=order, steps=steps, threshold=threshold, temperature=temperature)
    show_answer(*loaded, chosen, prompt, decoding, seed=seed, trace=trace)


@app.command()
def recipes() -> None:
    """The shipped recipes, one line each."""
    from unmask.config import shipped_recipes

    for name, path in shipped_recipes().items():
        first = path.read_text().splitlines()[0].lstrip("# ")
        print(f"{name:<16} {first}")


def _task(name: str) -> Any:
    from unmask.errors import UnmaskError, nearest
    from unmask.tasks import TASKS, CustomTaskSettings

    if ":" in name:
        return CustomTaskSettings(name=name).build()
    if name not in TASKS:
        raise UnmaskError(f"task {name}: unknown{nearest(name, TASKS)}")
    return TASKS[name]().build()


def _decoding(length: int, block: int | None, *, order: str, **options: Any) -> Any:
    """Decoding from command-line options; the block is the papers' 32 tokens where the response is longer."""
    from pydantic import ValidationError

    from unmask.config import explain
    from unmask.decoding import Decoding
    from unmask.errors import UnmaskError

    if order != "left_to_right" and block is None:
        block = min(32, length)
    try:
        return Decoding(order=order, length=length, block=block, **options)
    except ValidationError as error:
        raise UnmaskError(explain(error.errors()[0], Decoding)) from error


def quietly(command: Callable[[], Any]) -> None:
    """Run a command; a mistake in the input is one line on stderr and exit code 2, Ctrl-C exit code 130."""
    from unmask.errors import UnmaskError

    try:
        command()
    except UnmaskError as error:
        print(f"unmask: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        print(f"unmask: {interrupt.args[0] if interrupt.args else 'interrupted'}", file=sys.stderr)
        sys.exit(130)


def main() -> None:
    """The `unmask` command."""
    quietly(app)


if __name__ == "__main__":
    main()
