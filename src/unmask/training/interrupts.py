"""Ctrl-C and a cluster's SIGTERM, kept from tearing apart what belongs together."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """While entered, both signals raise KeyboardInterrupt: at once, or when the block that holds them back is done.

    Outside the main thread signals are somebody else's, and nothing is caught.
    """

    def __init__(self) -> None:
        self.received = 0
        """Signals that came since entering."""
        self._holding = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Let signals wait until the outermost such block is done."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
        if self.received and not self._holding:
            raise KeyboardInterrupt

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        if not self._holding:
            raise KeyboardInterrupt
