"""Decoding: what the sampling loop costs on top of the bare model forwards of the same batches.

overhead      seconds per row-forward of decoding over those of the bare forwards, minus 1; target ≤ 0.15
row_forwards  rows run over the fewest that the responses need; 1 is best
"""

import argparse
from pathlib import Path
from typing import cast

import torch
from common import medians, report, tiny_model
from torch import Tensor, nn

from unmask.decoding import Decoding, sample
from unmask.models import Denoiser, load
from unmask.tasks import Sudoku
from unmask.tasks.rendering import prompt_batch

ROWS, LENGTH = 512, 16


class Recorder(nn.Module):
    """Passes calls on to a model and keeps their arguments."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.mask_token_id = model, model.mask_token_id
        self.calls: list[tuple[Tensor, Tensor | None, Tensor]] = []

    def forward(self, ids: Tensor, attention: Tensor | None, *, scored: Tensor) -> object:
        self.calls.append((ids, attention, scored))
        return self.model(ids, attention, scored=scored)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()

    model, task = tiny_model(), Sudoku()
    _, tokenizer = load("tiny")
    ids, mask = prompt_batch(task, [task.train()[index] for index in range(ROWS)], tokenizer)
    rows = torch.arange(ROWS)
    decoding = Decoding(length=LENGTH, batch_tokens=4096)
    # rows at different stages, as the forks of ForkGRPO are
    given = torch.full((ROWS, LENGTH), tokenizer("1").input_ids[0])
    is_given = torch.arange(LENGTH) < (rows % 8).unsqueeze(-1)

    def run(denoiser: nn.Module) -> int:
        kept = {"given_ids": given, "is_given": is_given}
        return sample(cast(Denoiser, denoiser), ids, mask, decoding, rows, prompt=rows, group=rows, **kept).row_forwards

    recorder = Recorder(model)
    row_forwards = run(recorder)

    @torch.no_grad()
    def bare() -> None:
        for call_ids, attention, scored in recorder.calls:
            model(call_ids, attention, scored=scored)

    seconds = medians(arguments.repeats, bare=bare, decode=lambda: run(model))
    result = {
        "overhead": seconds["decode"] / seconds["bare"] - 1,
        "row_forwards": row_forwards / int((~is_given).sum()),
        "microseconds_per_row_forward": seconds["decode"] / row_forwards * 1e6,
    }
    report(result, arguments.json)


if __name__ == "__main__":
    main()
