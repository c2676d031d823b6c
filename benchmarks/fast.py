"""ForkGRPO-Fast against full ForkGRPO: whole updates of tiny/forkgrpo_fast and of ablations/groups_of_8, which has
none of the three switches, in turn, each training a model of its own.

Two full versions: `plain` runs every response's states on their own, as the paper's code does; `shared` is this
project's, which runs a state once however many responses pass through it. Fast shares as well.

rollout, replay, step   median seconds of plain full ForkGRPO over those of Fast; the paper's, on GSM8K with an 8B
                        model, are 1.76, 5.32 and 2.49
*_shared                the same over shared full ForkGRPO: what the three switches alone give
row_forwards*, states*  the same of what is computed: rows run while sampling, states run while replaying
occupancy               share of the sampler's places that were filled while rows were still to come; 1 is best
redundancy              rows run while sampling over states that responses passed through; responses share states
seconds_*               medians of each version's parts and whole updates
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from common import report
from torch import Tensor

from unmask.config import load_recipe
from unmask.decoding.distinct import Memory
from unmask.models import load
from unmask.runs import build_task
from unmask.training.distributed import World
from unmask.training.recipe import Recipe
from unmask.training.trainer import Trainer

FAST, FULL = "tiny/forkgrpo_fast", "ablations/groups_of_8"
PARTS = ("rollout", "reward", "replay", "step")


@contextmanager
def nothing_shared() -> Iterator[None]:
    """Every row and state is run on its own, also those that are equal."""

    def all_rows(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.arange(len(x), device=x.device)
        return rows, rows

    def run_all(_: Memory, states: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        return run(torch.arange(len(states), device=states.device))

    with (
        patch("unmask.decoding.sampler.distinct_rows", all_rows),
        patch("unmask.replay.states.distinct_rows", all_rows),
        patch.object(Memory, "look_up", run_all),
    ):
        yield


class Contestant:
    """A run in progress that remembers what its updates took."""

    def __init__(self, recipe_name: str, overrides: list[str], folder: Path) -> None:
        recipe = load_recipe(recipe_name, [*overrides, "evaluation.every=0"], Recipe)
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
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to both recipes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        plain = Contestant(FULL, arguments.set, Path(folder) / "plain")
        shared = Contestant(FULL, arguments.set, Path(folder) / "shared")
        fast = Contestant(FAST, arguments.set, Path(folder) / "fast")
        for _ in range(arguments.repeats + 1):
            with nothing_shared():
                plain.trainer.update()
            shared.trainer.update()
            fast.trainer.update()
    result = {
        **{part: plain.median(f"time/{part}") / fast.median(f"time/{part}") for part in ("rollout", "replay", "step")},
        **{
            f"{part}_shared": shared.median(f"time/{part}") / fast.median(f"time/{part}")
            for part in ("rollout", "replay", "step")
        },
        "tokens": shared.total("tokens/generated") / fast.total("tokens/generated"),
        "occupancy": fast.median("rows/occupancy"),
        "redundancy": fast.total("rows/forwarded") / fast.total("rows/needed"),
        "groups_mixed": fast.median("groups/mixed"),
    }
    for name, full in (("", plain), ("_shared", shared)):
        result[f"row_forwards{name}"] = full.total("rows/forwarded") / fast.total("rows/forwarded")
        result[f"states{name}"] = full.total("states/distinct") / fast.total("states/distinct")
    for name, contestant in (("plain", plain), ("shared", shared), ("fast", fast)):
        result |= {f"seconds_{name}_{part}": contestant.median(f"time/{part}") for part in PARTS}
    report(result, arguments.json)


if __name__ == "__main__":
    main()
