"""How many positions of a block are revealed by the end of each of its steps (static and random order).

A row's place in the schedule is read off its number of revealed positions alone. Tokens that were given to a row
count as revealed by the schedule's earlier steps, so a row that starts from a state of another goes on as it would.
"""

import torch
from torch import Tensor

from unmask.decoding.settings import Decoding

LAST_TIME = 1e-3
"""Where the linear schedule's times end, as in Dream."""


class Schedule:
    """One block's schedule.

    Args:
        decoding: settings of a static or random order.
        device: where row tensors are.
    """

    def __init__(self, decoding: Decoding, device: torch.device) -> None:
        self.steps, self.block_length = decoding.steps_per_block, decoding.block_length
        self.chance = linear_chance(self.steps).to(device)
        """(steps,) share of the masked positions that each step of the linear schedule reveals; the last is 1."""
        self.reached = torch.tensor(_reached(decoding, self.chance.cpu()), device=device)
        """(steps + 1,) positions revealed before the first step, and after each."""

    def elapsed(self, done: Tensor) -> Tensor:
        """Steps (A,) that rows with `done` (A,) revealed positions of their block have behind them, at the least."""
        return torch.searchsorted(self.reached, self.reached[self._next(done) - 1])

    def upcoming(self, done: Tensor) -> tuple[Tensor, Tensor]:
        """The next step (A,) that reveals anything, 0-based, and how many positions (A,) it reveals."""
        following = self._next(done)
        return following - 1, self.reached[following] - done

    def counted(self, idle: Tensor) -> Tensor:
        """Of `idle` steps that reveal nothing, those that have a number: all, or none where steps outnumber tokens.

        So a reveal step is as in the authors' code, and always less than the response's length.
        """
        return idle if self.steps <= self.block_length else torch.zeros_like(idle)

    def _next(self, done: Tensor) -> Tensor:
        """Index of the first count above `done`, which is less than the block's length."""
        return torch.searchsorted(self.reached, done, right=True)


def linear_chance(steps: int) -> Tensor:
    """1 − s/t for consecutive times t > s, evenly spaced from 1 to `LAST_TIME`; 1 for the last step. (steps,)."""
    # float32, as in Dream: int(masked · chance) has to round like there
    times = torch.linspace(1, LAST_TIME, steps + 1)
    chance = 1 - times[1:] / times[:-1]
    chance[-1] = 1
    return chance


def _reached(decoding: Decoding, chance: Tensor) -> list[int]:
    steps, masked = decoding.steps_per_block, decoding.block_length
    reached = [0]
    if decoding.opening == "first_token":
        reached.append(1)
    remaining = steps + 1 - len(reached)
    base, extra = divmod(masked - reached[-1], max(1, remaining))
    for step in range(len(reached) - 1, steps):
        left = masked - reached[-1]
        if decoding.schedule == "linear":
            share = int(left * chance[step])
        else:
            share = base + (step - (steps - remaining) < extra)
        reached.append(reached[-1] + share)
    return reached
