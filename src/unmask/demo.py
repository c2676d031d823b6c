"""`make demo`: train the shipped tiny model with ForkGRPO and show what it learned, in minutes on two cores."""

import sys

from unmask.cli import quietly


def demo(overrides: list[str]) -> None:
    """Run `tiny/forkgrpo`, then the table before and after and three puzzles."""
    from rich.table import Table

    from unmask import runs
    from unmask.config import load_recipe
    from unmask.console import TrainingView, before_after, console
    from unmask.evaluation import evaluate
    from unmask.models import load
    from unmask.training.recipe import Recipe

    recipe = load_recipe("tiny/forkgrpo", overrides, Recipe)
    task = recipe.task.build()
    console.print(
        "A 0.34 M-parameter diffusion language model fills in 4×4 sudokus, one cell at a time.\n"
        "ForkGRPO rewards right grids and nothing else. Watch the accuracy on grids it has never seen.\n"
    )
    with TrainingView("ForkGRPO") as view:
        result = runs.train(recipe, listeners=[view], name="demo")

    settings = recipe.evaluation
    tiny, tokenizer = load(recipe.model.name)
    before, after = (
        evaluate(model, tokenizer, task, settings.decoding, examples=settings.examples, seed=recipe.seed)
        for model in (tiny, result.model)
    )
    table = Table("model", f"solved of {len(before.rewards)} puzzles from held-out grids (pass@1, temperature 1)")
    table.add_row("before", f"{before.accuracy:.3f}")
    table.add_row("after ForkGRPO", f"[bold]{after.accuracy:.3f}[/bold]")
    console.print(table)
    console.print(before_after(task, before, after, 3))
    seconds = sum(metrics["time/step"] for metrics in result.metrics)
    console.print(
        f"{len(result.metrics)} updates, {int(result.metrics[-1]['tokens/generated_total']):,} generated tokens, "
        f"{seconds / 60:.1f} minutes of training.\n\n"
        f"Where to look next\n"
        f"  {result.run}/metrics.jsonl, samples/          what happened at every step\n"
        f"  .venv/bin/unmask sample {result.run}/checkpoints/step-{len(result.metrics):06d} --trace\n"
        f"                                                 watch a puzzle being filled\n"
        f"  .venv/bin/unmask recipes                       what else can be trained\n"
        f"  src/unmask/algorithms/forkgrpo.py              the whole algorithm on a page",
        highlight=False,
    )


if __name__ == "__main__":
    try:
        sys.exit(quietly(lambda: demo(sys.argv[1:])))
    except KeyboardInterrupt as interrupt:
        sys.exit(f"unmask: {interrupt}")
