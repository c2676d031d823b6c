"""The fork server: a warm interpreter that forks a supervised, confined process for every job.

Three processes take part, each the parent of the next:

- The server waits for jobs on a socket; it reads nothing of them but file descriptors.
- The supervisor of one job reads the request, opens new namespaces, and ends the job in time.
- The job is process 1 of its own process namespace: when it ends, the kernel ends everything it started.

A job cannot name the server, its supervisor or another job: they are in other process namespaces, and it has neither
rights nor further namespaces to reach them.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
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
MOUNT_FLAGS = 2 | 4
"""MS_NOSUID | MS_NODEV."""
PR_SET_CHILD_SUBREAPER = 36
PRELOADED = (
    "bisect collections copy dataclasses datetime decimal enum fractions functools hashlib heapq io itertools json math "
    "numbers operator random re statistics string textwrap typing"
)
"""What programs import most: it is there already after a fork."""

libc = ctypes.CDLL(None, use_errno=True)


def main(control: socket.socket, is_isolated: bool) -> None:
    """Serve jobs until the other end of `control` closes. A job comes as its file descriptors, its lease first."""
    for name in PRELOADED.split():
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors need no burial
    gc.freeze()
    control.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not message:
            return
        if os.fork() == 0:
            try:
                control.close()
                supervise(*map(_socket, descriptors), is_isolated=is_isolated)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _socket(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)


def supervise(lease: socket.socket, channel: "socket.socket | None" = None, *, is_isolated: bool) -> None:
    """Run one job, and say on its lease how it ended, when nothing of it is left.

    Args:
        lease: brings the request as a line of JSON; when the other end shuts it, the job ends.
        channel: given to the job.
        is_isolated: new namespaces for the job; without, it is only limited.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = json.loads(lease.makefile("rb").readline())
    began = time.monotonic()
    output = os.memfd_create("output")
    scratch = None
    if is_isolated:
        enter_namespaces()
    else:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        scratch = tempfile.mkdtemp(prefix="unmask-")
    job = os.fork()
    if job == 0:
        try:
            lease.close()
            confine(request["limits"], scratch)
            os._exit(perform(request, channel, output))
        finally:
            os._exit(1)
    if channel is not None:
        channel.close()
    ending = _wait(job, lease, began + request["limits"]["seconds"] - time.monotonic())
    _, status = os.waitpid(job, 0)
    if scratch is not None:
        end_descendants()
        shutil.rmtree(scratch, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    os.lseek(output, 0, os.SEEK_SET)
    with open(output, "rb") as file:
        text = file.read(request["limits"]["output_bytes"]).decode("utf-8", "replace")
    with contextlib.suppress(OSError):  # nobody waits for a job that was called off
        lease.sendall(json.dumps({"ending": ending, "code": code, "output": text}).encode() + b"\n")


def _wait(job: int, lease: socket.socket, seconds: float) -> str:
    """Wait for the job, the time limit or the lease, and kill what still runs."""
    descriptor = os.pidfd_open(job)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(lease, select.POLLIN)
    ready = [found for found, _ in poll.poll(max(0, seconds) * 1000)]
    if descriptor in ready:
        return "exit"
    os.kill(job, signal.SIGKILL)
    return "lease" if ready else "time"


def enter_namespaces() -> None:
    """This process's children start in a process namespace of their own; users, mounts and IPC are new from here on."""
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(NEW_NAMESPACES):
        raise OSError(ctypes.get_errno(), "no new namespaces")
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
            os.dup2(output, 1)
            assert channel is not None
            examiner.examine(channel, **arguments)
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


def end_descendants() -> None:
    """Kill and bury all that descends from this process, which orphans come back to. Needed without namespaces only."""
    while True:
        try:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                for child in file.read().split():
                    os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)
        except ChildProcessError:
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
    main(_socket(int(descriptor)), is_isolated == "isolated")


if __name__ == "__main__":
    start()
