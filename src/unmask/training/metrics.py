"""What a run writes about itself: one JSON object per optimizer step, and a few of the rollouts behind it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unmask.algorithms import Experience, Prompts
from unmask.tasks import Task
from unmask.tasks.rendering import response_text
from unmask.writing import replace_text


class MetricsFile:
    """`metrics.jsonl`: appended line by line, each line whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, metrics: dict[str, float]) -> None:
        append_text(self.path, json.dumps(metrics, allow_nan=False) + "\n")

    def read(self) -> list[dict[str, float]]:
        """Everything written so far."""
        return [json.loads(line) for line in self._lines()]

    def _lines(self) -> list[str]:
        """Whole lines; one that a crash cut short is left out."""
        text = self.path.read_text() if self.path.exists() else ""
        return text.split("\n")[:-1]

    def rewrite(self, change: Callable[[dict[str, float]], dict[str, float] | None]) -> None:
        """Replace every line by what `change` makes of it; none drops the line."""
        kept = [changed for line in self.read() if (changed := change(line)) is not None]
        replace_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))


def append_text(path: Path, text: str) -> None:
    """Write at the end of a file, which need not exist."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def write_samples(path: Path, task: Task, tokenizer: Any, prompts: Prompts, experience: Experience, count: int) -> None:
    """Write `count` rollouts, spread over the batch: prompt, response, reward, per-token advantage and reveal step."""
    rollout = experience.rollout
    rows = range(0, len(experience.reward), max(1, len(experience.reward) // max(count, 1)))[:count]
    texts = response_text(tokenizer, rollout.response_ids[list(rows)])
    lines = []
    for row, text in zip(rows, texts, strict=True):
        example = prompts.examples[int(rollout.prompt[row])]
        sample = {
            "prompt": task.prompt(example),
            "response": text,
            "reward": experience.reward[row].item(),
            "group": int(rollout.group[row]),
            "tokens": tokenizer.convert_ids_to_tokens(rollout.response_ids[row].tolist()),
            "advantage": [round(value, 6) for value in experience.advantage[row].tolist()],
            "reveal_step": rollout.reveal_step[row].tolist(),
            "logprob": [round(value, 6) for value in rollout.logprob[row].tolist()],
        }
        lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, "".join(lines))
