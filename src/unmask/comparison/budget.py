"""When the runs of a comparison end."""

import math
from dataclasses import dataclass

from unmask.errors import UnmaskError
from unmask.training.trainer import Trainer


@dataclass(frozen=True)
class Budget:
    """When a run ends: with the first step at which it has spent this much; without either, the recipe's own steps."""

    tokens: int | None = None
    """Generated tokens."""
    minutes: float | None = None
    """Minutes of training, evaluations not counted."""

    def __post_init__(self) -> None:
        if self.tokens is not None and self.minutes is not None:
            raise UnmaskError("compare: give tokens or minutes, not both")
        if self.tokens is not None and self.tokens < 1:
            raise UnmaskError(f"tokens={self.tokens}: use at least 1")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UnmaskError(f"minutes={self.minutes:g}: use more than 0")

    @property
    def is_limit(self) -> bool:
        """Whether there is one; else the recipes' own steps count."""
        return self.tokens is not None or self.minutes is not None

    def share(self, tokens: float, seconds: float) -> float:
        """What part of the budget has been spent; 1 and more: all of it."""
        if self.tokens is not None:
            return tokens / self.tokens
        assert self.minutes is not None
        return seconds / (60 * self.minutes)

    def is_spent(self, trainer: Trainer) -> bool:
        """The trainer's `is_over`."""
        return self.share(trainer.tokens_generated, trainer.seconds) >= 1

    def __str__(self) -> str:
        if self.tokens is not None:
            return f"--tokens {self.tokens}"
        return f"--minutes {self.minutes:g}" if self.minutes is not None else "the recipe's own steps"
