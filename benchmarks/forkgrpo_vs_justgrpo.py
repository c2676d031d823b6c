"""ForkGRPO against JustGRPO at equal generated tokens on the tiny task: docs/forkgrpo_vs_justgrpo.md and its curve.

Trains `tiny/forkgrpo` and `tiny/justgrpo` from the shipped model over several seeds, each run until it has
generated the same number of tokens, and evaluates both on the same 1,024 puzzles of held-out grids with the same
random numbers. Two runs at a time, one thread each. About 50 minutes for five seeds on two cores. `--keep FOLDER`
reuses the runs that are already there.

    .venv/bin/python benchmarks/forkgrpo_vs_justgrpo.py --seeds 0 1 2 3 4
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from unmask.comparison.curves import Curve, MeanPoint, draw, mean_curve, read_curve
from unmask.config import load_recipe
from unmask.training.recipe import Recipe

DOCS = Path(__file__).parents[1] / "docs"
RECIPES = {"ForkGRPO": "tiny/forkgrpo", "JustGRPO": "tiny/justgrpo"}


def train(recipe: str, seed: int, folder: Path, steps: int, every: int) -> Path:
    """One run in a process of its own; an existing finished one is kept."""
    run = folder / f"{recipe.replace('/', '-')}-{seed}"
    if not (run / "checkpoints" / f"step-{steps:06d}").is_dir():
        command = [sys.executable, "-m", "unmask", "train", recipe, f"seed={seed}", f"run.dir={run}"]
        command += [f"trainer.steps={steps}", f"evaluation.every={every}", "trainer.checkpoint_every=0"]
        shared = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        subprocess.run(command, check=True, env=shared, stdout=subprocess.DEVNULL)
    return run


def steps_for(recipe: str, tokens: float) -> int:
    """Steps that generate about `tokens`; a fork's place inside its window is taken in the middle."""
    settings = load_recipe(recipe, [], Recipe)
    length, size = settings.decoding.length, settings.algorithm.group_size
    windows = getattr(settings.algorithm, "windows", ())
    prompt = size * length + sum(size * (length - (first + last) / 2) for first, last in windows)
    return round(tokens / prompt / settings.trainer.prompts_per_step)


def tokens_to_reach(accuracy: float, points: list[MeanPoint]) -> float:
    """Generated tokens at which a curve first gets there, by straight lines between evaluations; nan = never."""
    for low, high in pairwise(points):
        if low.accuracy < accuracy <= high.accuracy:
            part = (accuracy - low.accuracy) / (high.accuracy - low.accuracy)
            return low.tokens + (high.tokens - low.tokens) * part
    return math.nan


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def page(curves: dict[str, list[Curve]], seconds: dict[str, list[float]], seeds: list[int]) -> str:
    """The measured table, whatever it says."""
    rows = []
    target = statistics.mean(points[-1].accuracy for points in curves["JustGRPO"])
    needed = {name: tokens_to_reach(target, mean_curve(runs)) for name, runs in curves.items()}
    for name, runs in curves.items():
        final = [points[-1].accuracy for points in runs]
        tokens = statistics.mean(points[-1].tokens for points in runs)
        reach = "not reached" if math.isnan(needed[name]) else f"{needed[name]:,.0f}"
        rows.append(
            f"| {name} | {spread([points[0].accuracy for points in runs])} | {spread(final)} | "
            f"{min(final):.3f} to {max(final):.3f} | {tokens:,.0f} | {reach} | "
            f"{spread([s / 60 for s in seconds[name]])} |"
        )
    return (
        "# ForkGRPO against JustGRPO on the tiny task\n\n"
        f"Both recipes from the shipped model, seeds {', '.join(map(str, seeds))}, at equal generated tokens; "
        "pass@1 sampling left to right at temperature 1 on 1,024 puzzles of held-out grids. "
        "Mean ± sample standard deviation over seeds. Made by `benchmarks/forkgrpo_vs_justgrpo.py`.\n\n"
        "| algorithm | before | final accuracy | range | tokens | "
        "tokens until the mean curve reaches JustGRPO's final mean | minutes of training, one core |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        + "\n".join(rows)
        + "\n\n![Accuracy against generated tokens](forkgrpo_vs_justgrpo.svg)\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--tokens", type=float, default=826_000)
    parser.add_argument("--evaluations", type=int, default=8)
    parser.add_argument("--keep", type=Path, default=Path("runs/forkgrpo_vs_justgrpo"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    with ThreadPoolExecutor(2) as pool:
        waiting = {}
        for seed in arguments.seeds:
            for name, recipe in RECIPES.items():
                steps = steps_for(recipe, arguments.tokens)
                every = max(1, steps // arguments.evaluations)
                waiting[name, seed] = pool.submit(train, recipe, seed, arguments.keep, steps, every)
        runs = {key: future.result() for key, future in waiting.items()}

    curves = {name: [read_curve(runs[name, seed]) for seed in arguments.seeds] for name in RECIPES}
    seconds = {name: [training_seconds(runs[name, seed]) for seed in arguments.seeds] for name in RECIPES}
    draw(curves, DOCS / "forkgrpo_vs_justgrpo.svg", title="4×4 sudoku, tiny model")
    text = page(curves, seconds, arguments.seeds)
    print(text)
    (DOCS / "forkgrpo_vs_justgrpo.md").write_text(text + notes(DOCS / "forkgrpo_vs_justgrpo.md"))
    if arguments.json:
        finals = {name: [points[-1].accuracy for points in points_of] for name, points_of in curves.items()}
        arguments.json.write_text(json.dumps(finals, indent=1) + "\n")


def training_seconds(run: Path) -> float:
    return sum(json.loads(line)["time/step"] for line in (run / "metrics.jsonl").read_text().splitlines())


def notes(file: Path) -> str:
    """What people wrote below the measured part, kept from one making to the next."""
    text = file.read_text() if file.exists() else ""
    marker = "\n## "
    return marker + text.split(marker, 1)[1] if marker in text else ""


if __name__ == "__main__":
    main()
