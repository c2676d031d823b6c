"""Equal rows found, so that nothing is computed twice.

Responses to one prompt share states: all of them start from the fully masked one, and go on sharing for as long as
they reveal the same tokens. A state's logits are the same for every row in it, so it is enough to run it once.
Forks and responses that start later meet states that others have left behind; these are remembered.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unmask.randomness import derive


def distinct_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of an integer matrix.

    Args:
        x: (R, W) int64.

    Returns:
        first (U,): where each distinct row occurs first, ascending; which (R,): the row of `first` that each row
        equals, so that `x[first][which]` is `x`.
    """
    # a 64-bit linear hash finds candidates far faster than comparing rows; the assertion makes the result exact
    weights = derive(torch.arange(x.shape[1], device=x.device), 0)
    _, which = (x * weights).sum(-1).unique(return_inverse=True)
    row = torch.arange(len(x), device=x.device)
    first = torch.full((int(which.max()) + 1 if len(x) else 0,), len(x), device=x.device)
    first = first.scatter_reduce(0, which, row, "amin")
    first, order = first.sort()
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
    which = rank[which]
    assert torch.equal(x[first][which], x), "two different rows have the same 64-bit hash"
    return first, which


class Memory:
    """Hidden states of the states run so far, at the one position that is looked at in each.

    When it is full it forgets everything: then states are run again, and results are the same.

    Args:
        elements: most numbers kept.
    """

    def __init__(self, elements: int = 2**28) -> None:
        self.elements = elements
        self.slot_of: dict[bytes, int] = {}
        self.hidden: Tensor | None = None
        """(passes, slots, 1, d), the first `len(slot_of)` slots in use."""

    def look_up(self, states: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Hidden states (passes, U, 1, d) of distinct states, of which only the unknown are run.

        Args:
            states: (U, W) int64, everything that tells one state from another.
            run: from indices (u,) of some of the states to their hidden states (passes, u, 1, d).
        """
        names = [row.tobytes() for row in states.cpu().numpy()]
        if self.hidden is not None and (len(self.slot_of) + len(names)) * self._width > self.elements:
            self.slot_of.clear()
        unknown = [index for index, name in enumerate(names) if name not in self.slot_of]
        if unknown:
            used = len(self.slot_of)
            self.slot_of |= {names[index]: used + place for place, index in enumerate(unknown)}
            self._keep(used, run(torch.tensor(unknown, device=states.device)))
        assert self.hidden is not None
        return self.hidden[:, [self.slot_of[name] for name in names]]

    @property
    def _width(self) -> int:
        assert self.hidden is not None
        return self.hidden.shape[0] * self.hidden.shape[-1]

    def _keep(self, used: int, hidden: Tensor) -> None:
        """Fill the slots from `used` on; room grows by doubling."""
        if self.hidden is None:
            self.hidden = hidden[:, :0]
        needed = used + hidden.shape[1]
        if needed > self.hidden.shape[1]:
            room = hidden.new_empty(hidden.shape[0], max(needed, 2 * used) - used, *hidden.shape[2:])
            self.hidden = torch.cat([self.hidden[:, :used], room], dim=1)
        self.hidden[:, used:needed] = hidden
