"""Runs that leave long examples out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import unmask
from unmask.config import load_recipe
from unmask.errors import UnmaskError
from unmask.runs import build_task, resume, train
from unmask.tasks import Countdown
from unmask.training.distributed import World
from unmask.training.recipe import Recipe
from unmask.training.trainer import Trainer

# `12,3,45=6` and a line feed, then 16 tokens: from 8 + 16 to 13 + 16
COUNTDOWN = ["task={name: countdown}", "trainer.max_tokens=27", "evaluation.every=0"]


@pytest.fixture
def varied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards that are mixed, whatever the model learns."""
    monkeypatch.setattr(Countdown, "reward", lambda _, example, response: float(sum(map(ord, response)) % 2))


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def untimed(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines(run / "metrics.jsonl")]


@pytest.mark.usefixtures("varied")
def test_a_resumed_run_asks_the_same_prompts(small: Callable, tmp_path: Path) -> None:
    more = [*COUNTDOWN, "trainer.samples_per_step=12"]
    straight = train("tiny/justgrpo", small("straight", *more, "trainer.steps=4"))
    train("tiny/justgrpo", small("halved", *more, "trainer.steps=2"))
    halved = resume(tmp_path / "halved", ["trainer.steps=4"])
    assert untimed(straight.run) == untimed(halved.run)
    assert all(step["grad_norm"] > 0 for step in straight.metrics) and straight.metrics[-1]["prompts/left_out"] > 0
    for one, other in zip(straight.model.parameters(), halved.model.parameters(), strict=True):
        assert torch.equal(one, other)
    for step in range(1, 5):
        name = f"samples/step-{step:06d}.jsonl"
        assert (straight.run / name).read_text() == (halved.run / name).read_text()
        assert all(len(sample["prompt"]) + 16 <= 27 for sample in lines(straight.run / name))


def test_two_workers_share_the_prompts_of_one(tmp_path: Path) -> None:
    recipe = load_recipe("tiny/justgrpo", [*COUNTDOWN, "trainer.prompts_per_step=5"], Recipe)
    model, tokenizer = unmask.load("tiny")
    task = build_task(recipe.task, 0)
    alone, first, second = (
        Trainer(recipe, tmp_path, model, tokenizer, task, World(rank, size)) for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    for step in (1, 2, 3):
        shares = [worker.prompts(step) for worker in (alone, first, second)]
        assert shares[0].examples[::2] == shares[1].examples and shares[0].examples[1::2] == shares[2].examples
        assert torch.equal(shares[0].key[::2], shares[1].key) and torch.equal(shares[0].key[1::2], shares[2].key)
        assert max(int(share.mask.sum(-1).max()) for share in shares) == 11, "the longest that fit"


def test_how_many_are_left_out_is_told_before_training(
    small: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from unmask.console import TrainingView

    file = tmp_path / "problems.jsonl"
    rows = [{"numbers": [1, 2, number], "target": 3} for number in (3, 33, 333, 3333)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told: list[dict[str, float]] = []
    options = [f"task={{name: countdown, train: {file}}}", "trainer.max_tokens=26", "evaluation.every=0"]
    with TrainingView("title") as view:
        train(
            "tiny/justgrpo",
            small("run", *options, "trainer.steps=1"),
            listeners=[view, lambda metrics, _: told.append(metrics)],
        )
    assert "1 of 4 training examples are left out as too long (trainer.max_tokens)" in capsys.readouterr().out
    assert told[0] == {"step": 0, "examples": 4, "examples/left_out": 1}


def test_nothing_is_written_when_no_example_fits(small: Callable, tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match=r"trainer\.max_tokens=20: each of 1,000 training examples is longer"):
        train("tiny/justgrpo", small("run", *COUNTDOWN, "trainer.max_tokens=20"))
    assert list(tmp_path.iterdir()) == []
