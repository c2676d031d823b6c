"""Equal rows found, so that nothing is computed twice.

Responses to one prompt share states: all of them start from the fully masked one, and go on sharing for as long as
they reveal the same tokens. A state's logits are the same for every row in it, so it is enough to run it once.
"""

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
