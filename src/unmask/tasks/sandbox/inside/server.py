"""The fork server: a warm interpreter that forks a confined process for every job.

The server is one loop over all jobs at work. It never reads a job's request or its output, so that nothing of one job
is in the memory that the next is forked from. A job is process 1 of its own process namespace: when it ends, the
kernel ends everything it started. It cannot name the server or another job: they are in other process namespaces, and
it has neither rights nor further namespaces to reach them.
"""

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
import site
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
READ_ONLY = 1
SCRATCH_FILES = 1 << 14
"""An empty file takes memory, too, that is not of its folder's size."""
PR_SET_CHILD_SUBREAPER = 36
PR_SET_DUMPABLE = 4
"""Without it, other processes of the same user can neither trace this one nor open its files in /proc."""
PR_SET_NO_NEW_PRIVS = 38
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
JOIN_SESSION_KEYRING = 1
PRELOADED = (
    "bisect collections copy dataclasses datetime decimal enum fractions functools hashlib heapq io itertools json "
    "math numbers operator re statistics string textwrap typing"
)
"""What programs import most: it is there already after a fork."""

libc = ctypes.PyDLL(None, use_errno=True)


class Job:
    """A job at work, as the server sees it.

    Args:
        lease: the host's hold on it. The job itself reads its request from there and says when it begins: until then it
            is the machine that fails, and not the program. When the host shuts its end, the job ends; how it ended is
            written to it when nothing of the job is left.
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
            with socket.socket(fileno=self.lease) as lease:
                with lease.makefile("rb") as file:
                    request = json.loads(file.readline())
                if request["role"] != "examiner":
                    offer()
                confine(self.limits, self.scratch)
                lease.sendall(b"begun\n")
            channel = None if self.channel is None else socket.socket(fileno=self.channel)
            code = perform(request, channel, self.output)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def kill(self, ending: str) -> None:
        self.ending = ending
        signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def bury(self, others: "dict[int, Job]") -> None:
        """Take note of its end, and tell when nothing of it is left."""
        _, status = os.waitpid(self.process, 0)
        if self.scratch is not None:  # with namespaces, the kernel has seen to all this
            end_strays(others)
            remove(self.scratch)
        code = os.waitstatus_to_exitcode(status)
        # what was ending already when it was killed has ended by itself
        answer = {"ending": self.ending if code == -signal.SIGKILL else "exit", "code": code}
        with socket.socket(fileno=self.lease) as lease, contextlib.suppress(OSError):  # nobody may wait any more
            lease.sendall(json.dumps(answer).encode() + b"\n")
        os.close(self.handle)


def main(control: socket.socket, is_isolated: bool) -> None:
    """Serve until the other end of `control` closes. A job comes as its limits and its file descriptors."""
    for name in PRELOADED.split():
        importlib.import_module(name)
    site.setquit()  # programs call `exit()`, which -S leaves out
    leave_keyring()
    # this process and its examiners hold verdicts, also from unconfined programs of the same user
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if not is_isolated:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
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
            job.bury(jobs)
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
        job.kill("lost")
    for job in jobs.values():
        job.bury(jobs)


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
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # or these files were not its own
    for file, text in [("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")]:
        with open(f"/proc/self/{file}", "w") as writer:
            writer.write(text)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def leave_keyring() -> None:
    """Take an own session keyring, in place of the one that comes from the host or is shared with other jobs."""
    libc.syscall(KEYCTL.get(os.uname().machine, -1), JOIN_SESSION_KEYRING, None)


def offer() -> None:
    """What holds untrusted code may be looked into, and is the first to go when the machine is out of memory."""
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as writer:
        writer.write("1000")


def confine(limits: "dict[str, Any]", scratch: "str | None") -> None:
    """Give this process a fresh scratch folder, take away all rights, and bind it to the limits."""
    if scratch is None:
        size = f"size={limits['scratch_bytes']},nr_inodes={SCRATCH_FILES},mode=0700"
        for folder in ("/tmp", "/dev/shm"):
            if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", MOUNT_FLAGS, size.encode()):
                raise OSError(ctypes.get_errno(), f"no fresh {folder}")
        # a view of the own processes; where the kernel does not grant one, none at all
        if libc.mount(b"proc", b"/proc", b"proc", MOUNT_FLAGS, None):
            if libc.mount(b"tmpfs", b"/proc", b"tmpfs", MOUNT_FLAGS | READ_ONLY, b"size=4k"):
                raise OSError(ctypes.get_errno(), "no fresh /proc")
        else:
            with contextlib.suppress(OSError), open("/proc/sys/user/max_user_namespaces", "w") as writer:
                writer.write("0")
        drop_capabilities()
    leave_keyring()
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
    from unmask.tasks.sandbox.inside import candidate, examiner, program

    role, arguments = request["role"], request["arguments"]
    try:
        if role == "program":
            program.run(output, **arguments)
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


def end_strays(jobs: "dict[int, Job]") -> None:
    """Kill and bury what has come back to this process as an orphan. Needed without namespaces only."""
    known = {job.process for job in jobs.values()}
    while strays := children(os.getpid()) - known:
        # a stopped process neither forks nor makes room for one that does: so this ends, also with a fork bomb
        stopped: set[int] = set()
        found = strays
        while found:
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
            stopped |= found
            found = set().union(*map(children, stopped)) - stopped
        for process in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for stray in strays:
            os.waitpid(stray, 0)


def remove(folder: str) -> None:
    """Delete a folder, also where its program has locked it."""
    with contextlib.suppress(OSError):  # it has deleted the folder itself
        os.chmod(folder, 0o700)
        for path, names, _ in os.walk(folder):
            for name in names:
                if not os.path.islink(os.path.join(path, name)):
                    os.chmod(os.path.join(path, name), 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def children(process: int) -> "set[int]":
    """Children of all threads of a process."""
    found: set[int] = set()
    with contextlib.suppress(OSError):  # it may have ended
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                found.update(map(int, file.read().split()))
    return found


def start() -> None:
    """Begin as `python -c` with the control socket, the kind of sandbox and the other modules' sources."""
    descriptor, is_isolated, sources = sys.argv[1:]
    sys.argv[:] = ["program.py"]  # what a program sees
    sys.path[:] = filter(None, sys.path)  # not the working folder
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
