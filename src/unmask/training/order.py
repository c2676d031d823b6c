"""Which training example each of a run's prompts asks, without the examples that are too long.

Every epoch visits all examples in an order of its own; the run takes one epoch after the other and passes over what
is too long. So the order is a function of seed and examples alone: the same on all workers, and nothing that a
checkpoint has to hold. Lengths are found when a prompt's turn comes, since a set may be made on demand and be huge; a
resumed run finds those of the prompts before it again.
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch

from unmask.errors import UnmaskError
from unmask.randomness import stream
from unmask.tasks import Example

LOOKED_THROUGH = 10_000
"""A data set in memory of at most so many examples is looked through before training, which takes seconds, so that how
many are left out is known. Examples made on demand may take longer."""

GIVEN_UP = 1_000
"""Of any other set, so many may be too long before the first that is not."""


class ExampleOrder:
    """The examples of prompts 0, 1, 2, ...

    Args:
        tokens: length of an example, prompt and response together.
        limit: the longest there may be; none leaves nothing out and finds no length.

    Raises:
        UnmaskError: no example is short enough.
    """

    def __init__(
        self, examples: Sequence[Example], seed: int, tokens: Callable[[Example], int], limit: int | None
    ) -> None:
        self.examples, self.seed, self.limit = examples, seed, limit
        self._tokens = cache(lambda index: tokens(examples[index]))
        self._taken: list[tuple[int, int]] = []
        """Of each prompt so far, its place in the epochs one after the other, and its example's index."""
        self._order = torch.empty(0)
        """Indices of the examples as the latest epoch visits them."""
        self._looked_at = 0
        """Places so far."""
        self.left_out: int | None = None
        """How many of the examples are too long, where that is known before training."""
        if limit is not None:
            self._look_ahead(limit)

    def __getitem__(self, prompt: int) -> Example:
        return self.examples[self._take(prompt)[1]]

    def passed_over(self, prompts: int) -> int:
        """How many too long examples have had their turn before the last of the first `prompts` prompts."""
        return self._take(prompts - 1)[0] + 1 - prompts

    def _take(self, prompt: int) -> tuple[int, int]:
        while len(self._taken) <= prompt:
            self._look()
        return self._taken[prompt]

    def _look(self) -> None:
        """Look at the next place, and take its example if it is short enough."""
        epoch, position = divmod(self._looked_at, len(self.examples))
        if position == 0:
            self._order = torch.randperm(len(self.examples), generator=stream(self.seed, "data", epoch))
        index = int(self._order[position])
        if self.limit is None or self._tokens(index) <= self.limit:
            self._taken.append((self._looked_at, index))
        self._looked_at += 1

    def _look_ahead(self, limit: int) -> None:
        size = len(self.examples)
        if isinstance(self.examples, list) and size <= LOOKED_THROUGH:
            while self._looked_at < size:
                self._look()
            self.left_out = size - len(self._taken)
        while not self._taken and self._looked_at < min(size, GIVEN_UP):
            self._look()
        if not self._taken:
            shortest = min(self._tokens(int(index)) for index in self._order[: self._looked_at])
            raise UnmaskError(
                f"trainer.max_tokens={limit}: each of {self._looked_at:,} training examples is longer; "
                f"the shortest has {shortest} tokens with its response"
            )
