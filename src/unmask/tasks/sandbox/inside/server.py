"""The fork server: a warm interpreter that forks a confined process for every job.

The server is one loop over all jobs at work. It never reads a job's request or its output, so that nothing of one job
is in the memory that the next is forked from. A job is process 1 of its own process namespace: when it ends, the
kernel ends everything it started. It cannot name the server or another job: they are in other process namespaces, and
it has neither rights nor further namespaces to reach them.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import types
from typing import Any

NEW_NAMESPACES = 0x10000000 | 0x20000000 | 0x00020000 | 0x08000000
"""CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC. The network is bubblewrap's, which has none."""
SYS_CLONE3 = 435
"""The same on every architecture."""
MOUNT_FLAGS = 2 | 4
"""MS_NOSUID | MS_NODEV."""
PR_SET_CHILD_SUBREAPER = 36
PRELOADED = (
    "bisect collections copy dataclasses datetime decimal enum fractions functools hashlib heapq io itertools json "
    "math numbers operator re statistics string textwrap typing"
)
"""What programs import most: it is there already after a fork."""

libc = ctypes.PyDLL(None, use_errno=True)


class Job:
    """A job at work, as the server sees it.

    Args:
        lease: the host's hold on it. The job itself reads its request from there; when the host shuts its end, the job
            ends; how it ended is written to it when nothing of the job is left.
        output: file for the standard output.
        channel: socket for the job's own use.
    """

    def __init__(self, limits: "dict[str, Any]", lease: int, output: int, channel: "int | None" = None) -> None:
        self.limits, self.lease, self.output, self.channel = limits, lease, output, channel
        self.deadline = time.monotonic() + limits["seconds"]
        self.ending = "exit"
        self.is_called_off = False
        self.scratch: str | None = None
        self.process = self.handle = -1

    def start(self, is_isolated: bool) -> None:
        """Fork."""
        uid, gid = os.getuid(), os.getgid()
        self.scratch = None if is_isolated else tempfile.mkdtemp(prefix="unmask-")
        self.process = clone() if is_isolated else os.fork()
        if self.process:
            self.handle = os.pidfd_open(self.process)
            for descriptor in (self.output, self.channel):
                if descriptor is not None:
                    os.close(descriptor)
            return
        code = 1
        try:
            close_all_but(self.lease, self.output, self.channel)
            if is_isolated:
                map_user(uid, gid)
                random.seed()  # os.fork would have seen to it
            with open(self.lease, "rb") as file:
                request = json.loads(file.readline())
            confine(self.limits, self.scratch)
            channel = None if self.channel is None else socket.socket(fileno=self.channel)
            code = perform(request, channel, self.output)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def kill(self, ending: str) -> None:
        self.ending = ending
        signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def bury(self) -> None:
        """Take note of its end, and tell."""
        _, status = os.waitpid(self.process, 0)
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        answer = {"ending": self.ending, "code": os.waitstatus_to_exitcode(status)}
        with socket.socket(fileno=self.lease) as lease, contextlib.suppress(OSError):  # nobody may wait any more
            lease.sendall(json.dumps(answer).encode() + b"\n")
        os.close(self.handle)


def main(control: socket.socket, is_isolated: bool) -> None:
    """Serve until the other end of `control` closes. A job comes as its limits and its file descriptors."""
    for name in PRELOADED.split():
        importlib.import_module(name)
    if not is_isolated:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.freeze()
    control.send(b"ready")
    jobs: dict[int, Job] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        now = time.monotonic()
        late = [job for job in jobs.values() if job.deadline <= now]
        for job in late:
            job.kill("time")
            job.deadline = now + 3600  # said once
        wait = min((job.deadline - now for job in jobs.values()), default=3600.0)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, wait) * 1000 + 1)}
        for job in [job for job in jobs.values() if job.handle in ready]:
            del jobs[job.handle]
            poll.unregister(job.handle)
            if not job.is_called_off:
                poll.unregister(job.lease)
            job.bury()
            if not is_isolated:
                end_strays(jobs)
        for job in jobs.values():
            if job.lease in ready and not job.is_called_off:
                job.is_called_off = True
                poll.unregister(job.lease)
                job.kill("lease")
        # new jobs come last: they take the numbers of files that were closed above
        if control.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(control, 1 << 12, 3)
            if not message:
                break
            job = Job(json.loads(message), *descriptors)
            job.start(is_isolated)
            jobs[job.handle] = job
            poll.register(job.handle, select.POLLIN)
            poll.register(job.lease, select.POLLRDHUP)
    for job in jobs.values():
        job.kill("lease")
        job.bury()
    if not is_isolated:
        end_strays({})


def clone() -> int:
    """Fork into new namespaces; like `os.fork`, the child's process number, and 0 in the child.

    A plain fork could not do it in one step: only the children of a process that has asked for a process namespace
    are in it.
    """
    arguments = (ctypes.c_uint64 * 8)(NEW_NAMESPACES, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    process = int(libc.syscall(SYS_CLONE3, arguments, ctypes.sizeof(arguments)))
    if process < 0:
        raise OSError(ctypes.get_errno(), "no new namespaces")
    return process


def close_all_but(*descriptors: "int | None") -> None:
    """Close every file but the standard ones and these: among them are the leases of other jobs."""
    first = 3
    for descriptor in sorted(kept for kept in descriptors if kept is not None):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, 1 << 20)


def map_user(uid: int, gid: int) -> None:
    """The same user and group in the new user namespace."""
    for file, text in [("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")]:
        with open(f"/proc/self/{file}", "w") as writer:
            writer.write(text)


def confine(limits: "dict[str, Any]", scratch: "str | None") -> None:
    """Give this process a fresh scratch folder, take away all rights, and bind it to the limits."""
    if scratch is None:
        size = f"size={limits['scratch_bytes']},mode=0700"
        for folder in ("/tmp", "/dev/shm"):
            if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", MOUNT_FLAGS, size.encode()):
                raise OSError(ctypes.get_errno(), f"no fresh {folder}")
        # a view of the own processes; where the kernel does not grant one, none at all
        if libc.mount(b"proc", b"/proc", b"proc", MOUNT_FLAGS, None):
            if libc.mount(b"tmpfs", b"/proc", b"tmpfs", MOUNT_FLAGS, b"size=4k"):
                raise OSError(ctypes.get_errno(), "no fresh /proc")
        else:
            with contextlib.suppress(OSError), open("/proc/sys/user/max_user_namespaces", "w") as writer:
                writer.write("0")
        drop_capabilities()
    os.chdir(scratch or "/tmp")
    os.setsid()
    tempfile.tempdir = scratch or "/tmp"
    seconds = int(limits["seconds"]) + 1
    for kind, most in [
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["output_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ]:
        resource.setrlimit(kind, (most, most))
    nowhere = os.open("/dev/null", os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def drop_capabilities() -> None:
    """No rights in the new namespaces; bubblewrap has seen to it that no program brings any back."""
    version, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(version, nothing):
        raise OSError(ctypes.get_errno(), "cannot drop capabilities")


def perform(request: "dict[str, Any]", channel: "socket.socket | None", output: int) -> int:
    """Run the job's code to its end: its exit code."""
    # named in the same words as in the package, so that both sides of the wall read the same files
    from unmask.tasks.sandbox.inside import candidate, examiner

    role, arguments = request["role"], request["arguments"]
    try:
        if role == "program":
            with open(os.memfd_create("input"), "wb+", buffering=0) as file:
                file.write(arguments["stdin"].encode("utf-8", "surrogatepass"))
                file.seek(0)
                os.dup2(file.fileno(), 0)
            os.dup2(output, 1)
            os.close(output)
            run_program(arguments["program"])
        elif role == "examiner":
            assert channel is not None
            examiner.examine(channel, output, **arguments)
        else:
            os.close(output)
            assert channel is not None
            candidate.serve(channel, **arguments)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    return 0


def run_program(program: str) -> None:
    """A whole program, from its first line to what it left for its exit."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        exec(compile(program, "program", "exec"), vars(module))
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()


def end_strays(jobs: "dict[int, Job]") -> None:
    """Kill and bury what has come back to this process as an orphan. Needed without namespaces only."""
    known = {job.process for job in jobs.values()}
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            strays = {int(child) for child in file.read().split()} - known
        for stray in strays:
            os.kill(stray, signal.SIGKILL)
        for stray in strays:
            os.waitpid(stray, 0)
        if not strays:
            return


def start() -> None:
    """Begin as `python -c` with the control socket, the kind of sandbox and the other modules' sources."""
    descriptor, is_isolated, sources = sys.argv[1:]
    for name, source in json.loads(sources).items():
        module = types.ModuleType(name)
        parent, _, last = name.rpartition(".")
        sys.modules[name] = module
        if parent in sys.modules:
            setattr(sys.modules[parent], last, module)
        exec(compile(source, name, "exec"), vars(module))
    main(socket.socket(fileno=int(descriptor)), is_isolated == "isolated")


if __name__ == "__main__":
    start()
