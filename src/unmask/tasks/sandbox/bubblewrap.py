"""How the fork server is started: inside bubblewrap, or without, as the unprivileged user.

Process limits do not bind root, so root's jobs run as `nobody`.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

from unmask.errors import UnmaskError

Kind = Literal["bubblewrap", "unsafe"]
"""`bubblewrap`, or `unsafe`: a limited process, with network and all files that its user may see."""

NOBODY = 65534
START_SECONDS = 30.0
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
ADVICE = "install bubblewrap (apt install bubblewrap) where user namespaces are allowed, or set sandbox: unsafe"


def start_server(kind: Kind) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A fork server that is ready for jobs, and the socket to send them on.

    Raises:
        UnmaskError: it does not start here; says what to install.
    """
    if kind == "bubblewrap" and shutil.which("bwrap") is None:
        raise UnmaskError(f"sandbox: bubblewrap is missing; {ADVICE}")
    reasons = []
    for interpreter in _interpreters():
        with open(os.memfd_create("complaints"), "rb") as complaints:
            server, control = _launch(kind, interpreter, complaints.fileno())
            if _works(control):
                control.settimeout(None)
                return server, control
            control.close()
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            complaints.seek(0)
            lines = complaints.read().decode("utf-8", "replace").strip().splitlines()
            reasons.append(lines[-1] if lines else "its server does not start")
    raise UnmaskError(f"sandbox: {kind} does not work here: {', '.join(reasons)}; {ADVICE}")


def _interpreters() -> list[str]:
    """This interpreter, then the system's: `nobody` may not see one in somebody's home."""
    own = str(Path(sys.executable).resolve())
    return list(dict.fromkeys([own, *(path for path in ("/usr/bin/python3",) if Path(path).exists())]))


def _launch(kind: Kind, interpreter: str, complaints: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(START_SECONDS)
    identity: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    with theirs:
        try:
            server = subprocess.Popen(
                _command(kind, interpreter, theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                pass_fds=[theirs.fileno()],
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,  # no terminal, and Ctrl-C is for us to hear
                **identity,
            )
        except OSError as error:  # an interpreter that `nobody` may not see, or no way to become `nobody`
            os.write(complaints, f"{interpreter} as user {NOBODY}: {error.strerror}".encode())
            server = subprocess.Popen(["/bin/false"], start_new_session=True)
    return server, ours


def _command(kind: Kind, interpreter: str, control: int) -> list[str]:
    inside = Path(__file__).parent / "inside"
    sources = {
        f"unmask.tasks.sandbox.inside{suffix}": (inside / file).read_text()
        for suffix, file in [
            ("", "__init__.py"),
            (".plain", "plain.py"),
            (".candidate", "candidate.py"),
            (".examiner", "examiner.py"),
            (".program", "program.py"),
        ]
    }
    isolation = "isolated" if kind == "bubblewrap" else "limited"
    # -s and -S: no installed packages; the environment is ours, and the seed in it makes the order of sets repeatable
    python = [interpreter, "-s", "-S", "-c", (inside / "server.py").read_text()]
    python += [str(control), isolation, json.dumps(sources)]
    if kind == "unsafe":
        return python
    return ["bwrap", *view(interpreter), "--", *python]


def view(interpreter: str) -> list[str]:
    """Options for what is seen inside: the system and the interpreter to read, nothing to write, no network."""
    options = ["--unshare-all", "--unshare-user", "--clearenv"]
    for key, value in ENVIRONMENT.items():
        options += ["--setenv", key, value]
    options += ["--ro-bind", "/usr", "/usr"]
    for path in map(Path, ["/bin", "/lib", "/lib64", "/sbin", "/lib32"]):
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    options += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    prefix = Path(interpreter).parents[1]
    if not prefix.is_relative_to("/usr"):
        for path in (prefix / name for name in ("bin", "lib", "lib64")):  # not all of it: it may be somebody's home
            options += ["--ro-bind-try", str(path), str(path)]
    for path in _packages(prefix):
        options += ["--tmpfs", str(path), "--remount-ro", str(path)]
    return [
        *options,
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--remount-ro",
        "/dev",
        "--remount-ro",
        "/",
        "--chdir",
        "/",
    ]


def _packages(prefix: Path) -> list[Path]:
    """Folders of installed packages: they may hold anything, e.g. a benchmark with its solutions."""
    roots = {Path("/usr"), Path("/usr/local"), prefix}
    return sorted({path.resolve() for root in roots for path in root.glob("lib*/python3*/*-packages")})


def _works(control: socket.socket) -> bool:
    """Whether the server starts and can confine a job."""
    ours, theirs = socket.socketpair()
    limits = {"seconds": 10, "memory_bytes": 2**29, "output_bytes": 2**20, "processes": 4, "scratch_bytes": 2**20}
    request = {"role": "program", "arguments": {"program": "print(1)", "stdin": ""}}
    with ours, theirs, open(os.memfd_create("output"), "rb") as output:
        ours.settimeout(START_SECONDS)
        try:
            if control.recv(16) != b"ready":
                return False
            socket.send_fds(control, [json.dumps(limits).encode()], [theirs.fileno(), output.fileno()])
            theirs.close()
            ours.sendall(json.dumps(request).encode() + b"\n")
            with ours.makefile("rb") as lines:
                said = lines.readline(), lines.readline()
                return said[0] == b"begun\n" and b'"exit"' in said[1] and os.pread(output.fileno(), 9, 0) == b"1\n"
        except OSError:
            return False
