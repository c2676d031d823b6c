"""Sandbox: runs jobs in confined processes and says how they ended."""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from types import TracebackType
from typing import Any, Literal, Self

from unmask.tasks.sandbox.bubblewrap import Kind, start_server

GRACE_SECONDS = 10.0
"""After its time limit a job is given up together with its server: the server itself hangs."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a job may use. The kernel holds it to them."""

    seconds: float = 5.0
    """Wall time of the job; processor time of each of its processes, rounded up."""
    memory_bytes: int = 512 * 2**20
    """Address space of each of its processes."""
    processes: int = 16
    """Processes and threads at a time."""
    output_bytes: int = 4 * 2**20
    """Standard output, and any one file."""
    scratch_bytes: int = 64 * 2**20
    """Its scratch folder, in memory."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    ending: Literal["exit", "time", "lease", "lost"]
    """By itself, at its time limit, because it was called off; or lost with its server or before it began, for which no
    program is to blame."""
    code: int
    """Exit code; minus the signal that ended it."""
    output: str
    """Standard output, up to the limit."""

    @property
    def is_success(self) -> bool:
        """Ended by itself with exit code 0. Never a verdict: a program chooses its own exit code."""
        return self.ending == "exit" and self.code == 0


class SandboxLostError(RuntimeError):
    """A program cannot be judged: the sandbox was lost over it twice. That costs no other program its verdict."""

    def __init__(self) -> None:
        super().__init__(
            "sandbox: lost twice over one program (its server was killed, or its job could not begin); "
            "see that the machine does not run out of memory or processes"
        )


class Sandbox:
    """A fork server in a sandbox, for any number of threads. It starts with the first job, and again when it is lost.

    Args:
        kind: `bubblewrap`, or `unsafe`.

    Raises:
        UnmaskError: at the first job, where there is no such sandbox; one line that says what to install.
    """

    def __init__(self, kind: Kind = "bubblewrap") -> None:
        self.kind: Kind = kind
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, program: str, stdin: str = "", limits: Limits | None = None) -> Outcome:
        """Run a whole program."""
        with self.job("program", {"program": program, "stdin": stdin}, limits or Limits()) as job:
            return job.wait()

    def job(
        self, role: str, arguments: Mapping[str, Any], limits: Limits, channel: socket.socket | None = None
    ) -> "Job":
        """Begin a job; the `channel`, if any, is handed over to it and closed here."""
        self.start()  # raises before anything is open
        output = os.memfd_create("output")
        ours, theirs = socket.socketpair()
        with theirs, channel or contextlib.nullcontext():
            descriptors = [theirs.fileno(), output] + ([channel.fileno()] if channel else [])
            for _ in range(2):  # a server that was lost is noticed here
                control = self.start()
                try:
                    socket.send_fds(control, [json.dumps(asdict(limits)).encode()], descriptors)
                    break
                except OSError:
                    self._discard(control)
        ours.settimeout(limits.seconds + GRACE_SECONDS)
        with contextlib.suppress(OSError):  # waiting tells
            ours.sendall(json.dumps({"role": role, "arguments": arguments}).encode() + b"\n")
        return Job(ours, output, limits.output_bytes, lambda: self._discard(control))

    def start(self) -> socket.socket:
        """The control socket of a server that runs."""
        with self._lock:
            if self._owner != os.getpid():  # a fork of the process that the server belongs to
                self._owner, self._server, self._control = os.getpid(), None, None
            if self._control is None:
                self._server, self._control = start_server(self.kind)
            return self._control

    def close(self) -> None:
        """End the server and every job. The next job starts another."""
        if self._control is not None:
            self._discard(self._control)

    def _discard(self, control: socket.socket) -> None:
        with self._lock:
            if control is not self._control:
                return
            assert self._server is not None
            control.close()  # which a server takes for its end
            try:
                self._server.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._server.pid, signal.SIGKILL)
                self._server.wait()
            self._server = self._control = None


class Job:
    """A job under way. Leaving the `with` ends it."""

    def __init__(self, lease: socket.socket, output: int, output_bytes: int, give_up: Callable[[], None]) -> None:
        self._lease, self._output, self._output_bytes, self._give_up = lease, output, output_bytes, give_up

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.close()
        os.close(self._output)

    def wait(self) -> Outcome:
        """How it ended; nothing of it is left then."""
        said: list[bytes] = []
        try:
            with self._lease.makefile("rb") as lines:
                said.extend(lines)
        except TimeoutError:
            self._give_up()
        except OSError:
            pass
        has_begun = b"begun\n" in said
        ended: dict[str, Any] = {"ending": "lost", "code": -1}
        if said and said[-1].startswith(b"{") and said[-1].endswith(b"\n"):
            ended = json.loads(said[-1])
        if not has_begun and ended["ending"] != "lease":
            ended["ending"] = "lost"
        output = os.pread(self._output, self._output_bytes, 0).decode("utf-8", "replace")
        return Outcome(ended["ending"], ended["code"], output)

    def end(self) -> Outcome:
        """Call it off; how it ended."""
        with contextlib.suppress(OSError):
            self._lease.shutdown(socket.SHUT_WR)
        return self.wait()


@cache
def shared_sandbox(kind: Kind) -> Sandbox:
    """The sandbox of this process; it ends with it."""
    sandbox = Sandbox(kind)
    atexit.register(sandbox.close)
    return sandbox
