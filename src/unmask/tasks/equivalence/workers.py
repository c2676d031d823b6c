"""Comparing answers in processes of their own, which the kernel kills when they take too long.

A response can hold anything, also a power tower that no library survives. So whatever is not a plain number is compared
in a worker: a fresh Python that reads pairs as JSON lines. It sets itself timers that cannot be caught before each
pair; when one fires, the pair is undecided and the next pair gets a new worker. Safe from any thread and after a fork;
a worker ends with the process that started it, also when that is killed, because its input then ends.
"""

import atexit
import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

from unmask.tasks.equivalence.deciding import LIBRARY_NOTATION, decide, decide_by_library, math_verify
from unmask.tasks.equivalence.spelling import Unreadable

CPU_LIMIT = 1.0
"""Seconds of computing for one pair."""
LIBRARY_CPU_LIMIT = 0.6
"""Seconds of computing for a second attempt, through math-verify; its import, once in each worker, comes on top."""
WALL_LIMIT = 3.0
"""Seconds on the clock for all of that, where the machine is busy or the worker waits."""
MEMORY_LIMIT = 4 * 1024**3
"""Bytes of address space of a worker."""
PATIENCE = 15.0
"""Seconds after which a worker that neither answers nor dies is killed from outside; the timers make it rare."""
START_LIMIT = 60.0
"""Seconds for a new worker to say that it is ready."""
WORKERS = max(1, min(4, os.cpu_count() or 1))


class Worker:
    """One process and its two pipes."""

    def __init__(self) -> None:
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the program, which may have to finish its step
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.is_ready = False

    def ask(self, gold: str, answer: str) -> bool | None:
        """The worker's decision; none when it had none to give, and then it may be dead."""
        assert self.process.stdin is not None
        if not self.is_ready and self._line(START_LIMIT) is None:
            raise RuntimeError("a worker for comparing answers did not start")
        self.is_ready = True
        try:
            self.process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
        except BrokenPipeError:
            return None
        line = self._line(PATIENCE)
        if line is None:
            self.process.kill()
            self.process.wait()
            return None
        return {b"true": True, b"false": False}.get(line)

    def _line(self, seconds: float) -> bytes | None:
        assert self.process.stdout is not None
        descriptor, deadline, received = self.process.stdout.fileno(), time.monotonic() + seconds, b""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not received.endswith(b"\n"):
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return None
            chunk = os.read(descriptor, 4096)
            if not chunk:
                return None
            received += chunk
        return received.strip()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        """End the process, now."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Pool:
    """Up to `WORKERS` workers, each started when it is first needed; one that died is replaced at once."""

    def __init__(self) -> None:
        self.places: queue.LifoQueue[Worker | None] = queue.LifoQueue()  # last in first out: few workers do the work
        for _ in range(WORKERS):
            self.places.put(None)
        self.started: list[Worker] = []

    def ask(self, gold: str, answer: str) -> bool | None:
        """A worker's decision; waits until one is free."""
        worker = self.places.get()
        try:
            if worker is None or not worker.is_alive:
                worker = self._start_instead_of(worker)
            decision = worker.ask(gold, answer)
            if not worker.is_alive:
                worker = self._start_instead_of(worker)
            return decision
        except BaseException:
            # interrupted in the middle: an answer that nobody read must not be taken for the next one's
            if worker is not None:
                self._drop(worker)
                worker = None
            raise
        finally:
            self.places.put(worker)

    def _start_instead_of(self, worker: Worker | None) -> Worker:
        """A new worker, which starts while its caller goes on."""
        if worker is not None:
            self._drop(worker)
        started = Worker()
        self.started.append(started)
        return started

    def _drop(self, worker: Worker) -> None:
        worker.close()
        with suppress(ValueError):  # dropped before, if an interrupt came in between
            self.started.remove(worker)

    def close(self) -> None:
        """End all workers."""
        for worker in list(self.started):
            self._drop(worker)


_pools: dict[int, Pool] = {}
"""Process → its pool: a fork must not write into its parent's pipes."""


def ask(gold: str, answer: str) -> bool | None:
    """Whether two answers are the same, decided in a worker; none when it could not be told or took too long."""
    process = os.getpid()
    pool = _pools.get(process) or _pools.setdefault(process, Pool())
    return pool.ask(gold, answer)


@atexit.register
def close() -> None:
    """End all workers of this process; the next question starts new ones."""
    if pool := _pools.pop(os.getpid(), None):
        pool.close()


def serve() -> None:
    """A worker's life: read a pair, answer, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(*json.loads(line))), file=answers, flush=True)


def _answer(gold: str, answer: str) -> bool | None:
    try:
        _start_timers()
        return decide(gold, answer)
    except Unreadable:
        if not LIBRARY_NOTATION.search(gold + answer):
            return None
        signal.setitimer(signal.ITIMER_PROF, 0)
        math_verify()  # its import is not the answer's fault
        signal.setitimer(signal.ITIMER_PROF, LIBRARY_CPU_LIMIT)
        return decide_by_library(gold, answer)
    except MemoryError:
        return None
    finally:
        _stop_timers()


def _start_timers() -> None:
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT)
    signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT)


def _stop_timers() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
