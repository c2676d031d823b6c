"""Decoding: against the plainest loop that gives the same tokens, and on top of the bare model forwards.

decoding      seconds of the plain loop over ours, block-wise dynamic order at temperature 1, prompts of mixed lengths
              and responses at mixed stages; the loop keeps a fixed batch until all are done, computes all logits and
              draws at all response positions; target ≥ 1.5
overhead      left to right: seconds per row-forward of decoding over those of the bare forwards, minus 1; target ≤ 0.15
row_forwards  left to right: rows run over the fewest that the responses need; 1 is best
"""

import argparse
from pathlib import Path
from typing import cast

import torch
from common import medians, report, tiny_model
from torch import Tensor, nn

from unmask.decoding import Decoding, sample
from unmask.models import Denoiser, load
from unmask.randomness import uniform
from unmask.tasks import Sudoku
from unmask.tasks.rendering import prompt_batch

ROWS, LENGTH = 512, 16
PLAIN_ROWS, BLOCK, THRESHOLD = 64, 8, 0.9


class Recorder(nn.Module):
    """Passes calls on to a model and keeps their arguments."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.mask_token_id, self.vocab_size = model.mask_token_id, model.vocab_size
        self.calls: list[tuple[Tensor, Tensor | None, Tensor]] = []

    def forward(self, ids: Tensor, attention: Tensor | None, *, scored: Tensor, return_hidden: bool) -> object:
        self.calls.append((ids, attention, scored))
        return self.model(ids, attention, scored=scored, return_hidden=return_hidden)

    def head(self, hidden: Tensor) -> Tensor:
        return cast(Denoiser, self.model).head(hidden)


@torch.no_grad()
def plain_dynamic(model: Denoiser, ids: Tensor, mask: Tensor, key: Tensor, given_ids: Tensor, given: Tensor) -> Tensor:
    """Responses (B, L) of the dynamic order at temperature 1, one batch of fixed rows from beginning to end."""
    revealed = given.clone()
    tokens = torch.where(revealed, given_ids, model.mask_token_id)
    attention = torch.cat([mask.bool(), torch.ones_like(revealed)], dim=-1)
    position, step = torch.arange(LENGTH), torch.zeros(len(ids), 1, dtype=torch.int64)
    while not revealed.all():
        logits = model(torch.cat([ids, tokens], dim=-1), attention).logits[:, -LENGTH:]
        probabilities = logits.softmax(-1)
        cumulative = probabilities.double().cumsum(-1)
        draw = uniform(key.unsqueeze(-1), step, position) * cumulative[..., -1]
        drawn = torch.searchsorted(cumulative, draw.unsqueeze(-1))
        confidence = probabilities.gather(-1, drawn).squeeze(-1)
        block = (~revealed).int().argmax(-1, keepdim=True) // BLOCK
        in_block = (position // BLOCK == block) & ~revealed
        confidence = confidence.masked_fill(~in_block, -1.0)
        best = position == confidence.argmax(-1, keepdim=True)
        chosen = ((confidence >= THRESHOLD) | best) & in_block
        tokens = torch.where(chosen, drawn.squeeze(-1), tokens)
        revealed |= chosen
        step += 1
    return tokens


def against_plain_loop(model: Denoiser, ids: Tensor, mask: Tensor, given_ids: Tensor, repeats: int) -> float:
    """Seconds of the plain loop over ours, for the same tokens."""
    rows = torch.arange(PLAIN_ROWS)
    ids, mask, given_ids = ids[rows], mask[rows].bool(), given_ids[rows]
    mask = mask & (torch.arange(mask.shape[1]) >= (rows % 4 * 3).unsqueeze(-1))
    given = torch.arange(LENGTH) < (rows % 8 * 2).unsqueeze(-1)
    decoding = Decoding(order="dynamic", block=BLOCK, threshold=THRESHOLD, length=LENGTH)

    def ours() -> Tensor:
        return sample(
            model, ids, mask, decoding, rows, prompt=rows, group=rows, given_ids=given_ids, is_given=given
        ).response_ids

    def plain() -> Tensor:
        return plain_dynamic(model, ids, mask, rows, given_ids, given)

    assert torch.equal(ours(), plain()), "the two loops draw different tokens"
    seconds = medians(repeats, plain=plain, ours=ours)
    return seconds["plain"] / seconds["ours"]


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
        everything = (cast(Denoiser, denoiser), ids, mask, decoding, rows)
        return sample(*everything, prompt=rows, group=rows, given_ids=given, is_given=is_given).row_forwards

    recorder = Recorder(model)
    row_forwards = run(recorder)

    @torch.no_grad()
    def bare() -> None:
        for call_ids, attention, scored in recorder.calls:
            model(call_ids, attention, scored=scored)

    seconds = medians(arguments.repeats, bare=bare, decode=lambda: run(model))
    result = {
        "decoding": against_plain_loop(model, ids, mask, given, arguments.repeats),
        "overhead": seconds["decode"] / seconds["bare"] - 1,
        "row_forwards": row_forwards / int((~is_given).sum()),
        "microseconds_per_row_forward": seconds["decode"] / row_forwards * 1e6,
    }
    report(result, arguments.json)


if __name__ == "__main__":
    main()
