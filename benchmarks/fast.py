"""ForkGRPO-Fast against full ForkGRPO: whole updates on the tiny recipe, in turn, each training a model of its own.

rollout, replay, step   median seconds of full ForkGRPO over those of Fast; the paper's, on GSM8K with an 8B model,
                        are 1.76, 5.32 and 2.49
row_forwards, states    the same of what is computed: rows run while sampling, states run while replaying
overhead_*              median share of Fast's step that is neither sampling, judging nor replay (logging, samples)
occupancy               share of the sampler's places that were filled while rows were still to come; 1 is best
redundancy              rows run while sampling over states that responses passed through; responses share states
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from common import report

from unmask.config import load_recipe
from unmask.models import load
from unmask.runs import build_task
from unmask.training.distributed import World
from unmask.training.recipe import Recipe
from unmask.training.trainer import Trainer

FULL = ["algorithm.pilot=null", "algorithm.sparse_replay=false", "algorithm.state_share=1"]


class Contestant:
    """A run in progress that remembers what its updates took."""

    def __init__(self, overrides: list[str], folder: Path) -> None:
        recipe = load_recipe("tiny/forkgrpo_fast", [*overrides, "evaluation.every=0"], Recipe)
        folder.mkdir()
        model, tokenizer = load("tiny", dtype="float32")
        task = build_task(recipe.task, 0)
        self.seen: list[dict[str, float]] = []
        self.trainer = Trainer(
            recipe, folder, model, tokenizer, task, World(0, 1), [lambda metrics, _: self.seen.append(metrics)]
        )

    def median(self, name: str) -> float:
        """Over all updates but the first, which warms up."""
        return statistics.median(metrics[name] for metrics in self.seen[1:])

    def total(self, name: str) -> float:
        return sum(metrics[name] for metrics in self.seen[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to the recipe, for both")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        full = Contestant([*arguments.set, *FULL], Path(folder) / "full")
        fast = Contestant(arguments.set, Path(folder) / "fast")
        for _ in range(arguments.repeats + 1):
            for contestant in (full, fast):
                contestant.trainer.update()
    result = {what: full.median(f"time/{what}") / fast.median(f"time/{what}") for what in ("rollout", "replay", "step")}
    parts = ("rollout", "reward", "replay")
    result |= {
        "row_forwards": full.total("rows/forwarded") / fast.total("rows/forwarded"),
        "tokens": full.total("tokens/generated") / fast.total("tokens/generated"),
        "states": full.total("states/distinct") / fast.total("states/distinct"),
        "occupancy": fast.median("rows/occupancy"),
        "redundancy": fast.total("rows/forwarded") / fast.total("rows/needed"),
        "groups_mixed_full": full.median("groups/mixed"),
        **{f"seconds_full_{part}": full.median(f"time/{part}") for part in (*parts, "step")},
        **{f"seconds_fast_{part}": fast.median(f"time/{part}") for part in (*parts, "step")},
    }
    report(result, arguments.json)


if __name__ == "__main__":
    main()
