"""The sandbox: what a job may do, what it may not, and that nothing of it is left."""

# ruff: noqa: E501  # candidate programs read best in a line of their own

import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unmask.errors import UnmaskError
from unmask.tasks import Code, CodeSettings, Verdict, judge_safely
from unmask.tasks.sandbox import Examination, Limits, Sandbox, SandboxLostError, Step, bubblewrap, examine
from unmask.tasks.sandbox import sandbox as sandboxes

SHORT = Limits(seconds=1, memory_bytes=256 * 2**20)
TWO_TESTS = Examination(names=("f",), steps=(Step("assert f(1) == 2", True), Step("assert f(2) == 3", True)))
RIGHT = "def f(x):\n    return x + 1"


@pytest.fixture(scope="module", params=["bubblewrap", "unsafe"])
def either(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param == "unsafe":
        with Sandbox("unsafe") as sandbox:
            yield sandbox
    else:
        yield request.getfixturevalue("sandbox")


def descendants() -> set[int]:
    """Processes that descend from this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def scratch_folders() -> set[str]:
    """Of jobs without namespaces, also those of other tests at the same time."""
    return {name for folder in ("/tmp", "/var/tmp") for name in os.listdir(folder) if name.startswith("unmask-")}


def comes_true(is_true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not is_true() and time.monotonic() < end:
        time.sleep(0.05)
    return is_true()


def test_a_program_reads_and_prints(either: Sandbox) -> None:
    outcome = either.run("import sys\nprint(input() * 2)\nprint(sys.stdin.read(), end='')", "ab\ncd\n", SHORT)
    assert outcome.is_success and outcome.output == "abab\ncd\n"
    assert either.run("raise SystemExit(3)", limits=SHORT).code == 3
    assert either.run("1 / 0", limits=SHORT).code == 1
    assert either.run("not python", limits=SHORT).code == 1


FORKS = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
ORPHAN = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)"
DEAF = "import signal\nfor n in (1, 2, 15):\n    signal.signal(n, signal.SIG_IGN)\nwhile True: pass"
FLOOD = "while True:\n    print('x' * 100000)"
FILE = "f = open('big', 'wb')\nwhile True:\n    f.write(bytes(1 << 20))"


@pytest.mark.parametrize(
    "program", [FORKS, ORPHAN, DEAF, FLOOD, FILE, "x = bytearray(1 << 36)", "import time; time.sleep(60)"]
)
def test_a_bomb_ends_in_time_and_leaves_no_process(either: Sandbox, program: str) -> None:
    before, began = descendants(), time.monotonic()
    outcome = either.run(program, limits=SHORT)
    assert time.monotonic() - began < 8
    assert len(outcome.output) <= SHORT.output_bytes
    assert program is ORPHAN or not outcome.is_success
    for _ in range(500):  # a busy machine takes its time to bury them
        if descendants() <= before:
            break
        time.sleep(0.02)
    assert descendants() <= before
    assert either.run("print(1)", limits=SHORT).output == "1\n"


def test_a_job_sees_no_network_no_files_and_no_other_process(sandbox: Sandbox) -> None:
    program = """
import os, socket
print(sorted(os.listdir("/tmp")), os.getpid(), os.path.exists("/etc/passwd"), os.path.exists("/home"))
print([name for _, name in socket.if_nameindex()], len([p for p in os.listdir("/proc") if p.isdigit()]))
for path in ("/usr/x", "/x", "/etc/hostname", "/dev/x", "/proc/sys/kernel/hostname"):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError:
        pass
print(*os.environ)
"""
    seen = sandbox.run(program, limits=SHORT).output.splitlines()
    assert seen[0] == "[] 1 False False"
    assert seen[1].startswith("['lo'] ") and int(seen[1].split()[1]) <= 1
    assert set(seen[2].split()) <= {*bubblewrap.ENVIRONMENT, "PWD", "LC_CTYPE"}


def test_all_jobs_are_alike_and_the_first_to_go(either: Sandbox) -> None:
    program = "print(hash('a'), open('/proc/self/oom_score_adj').read())"
    said = either.run(program, limits=SHORT).output.split()
    with Sandbox(either.kind) as another:
        assert another.run(program, limits=SHORT).output.split() == said
    assert said[1] == "1000"


def test_a_job_sees_no_installed_package_and_has_few_files(sandbox: Sandbox) -> None:
    program = """
import glob, os
print(sum(len(os.listdir(path)) for path in glob.glob("/usr/lib*/python3*/*-packages")))
try:
    for number in range(99999):
        open(f"{number}", "w").close()
except OSError:
    print(number < 20000)
"""
    assert sandbox.run(program, limits=Limits(seconds=20)).output.split() == ["0", "True"]


def test_a_job_leaves_nothing_to_the_next(sandbox: Sandbox) -> None:
    leave = """
import os, ctypes, builtins
open("/tmp/note", "w").write("x")
open("/dev/shm/note", "w").write("x")
libc = ctypes.CDLL(None)
print(libc.shmget(1234, 4096, 0o1666) >= 0)
builtins.note = 1
try:
    os.kill(-1, 9)
except OSError:
    pass
try:
    os.kill(os.getppid(), 9)
except OSError:
    pass
"""
    look = """
import os, ctypes, builtins
libc = ctypes.CDLL(None)
print(os.listdir("/tmp"), os.listdir("/dev/shm"), libc.shmget(1234, 4096, 0), hasattr(builtins, "note"))
"""
    server = sandbox.start()
    sandbox.run(leave, limits=SHORT)
    assert sandbox.run(look, limits=SHORT).output == "[] [] -1 False\n"
    assert sandbox.start() is server


def test_a_job_has_no_rights_and_cannot_get_any(sandbox: Sandbox) -> None:
    program = """
import ctypes
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(int(status["CapEff"], 16), int(status["CapPrm"], 16), status["NoNewPrivs"])
libc = ctypes.CDLL(None)
print(libc.unshare(0x10000000), libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None))
"""
    assert sandbox.run(program, limits=SHORT).output == "0 0 1\n-1 -1\n"


def test_a_lost_server_is_replaced(sandbox: Sandbox) -> None:
    with Sandbox() as own:
        assert own._server is not None
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(own.run, "import time\ntime.sleep(20)", "", Limits(seconds=30))
            time.sleep(0.3)
            os.killpg(own._server.pid, signal.SIGKILL)
            assert running.result(timeout=10).ending == "lost"
        assert own.run("print(1)").output == "1\n"


def test_many_threads_at_once(either: Sandbox) -> None:
    with ThreadPoolExecutor(8) as threads:
        outputs = threads.map(lambda n: either.run(f"print({n})", limits=Limits(seconds=20)).output, range(64))
    assert list(outputs) == [f"{n}\n" for n in range(64)]


def test_the_thread_that_started_it_may_end(sandbox: Sandbox) -> None:
    own = Sandbox()
    thread = threading.Thread(target=own.start)
    thread.start()
    thread.join()
    assert own.run("print(1)").output == "1\n"
    own.close()


def held(processes: set[int]) -> int:
    """Memory of processes, in KiB."""
    status = [path.read_text() for process in processes if (path := Path(f"/proc/{process}/status")).exists()]
    return sum(int(text.partition("VmRSS:")[2].split()[0]) for text in status if "VmRSS:" in text)


def test_nothing_is_left_of_a_thousand_programs(sandbox: Sandbox) -> None:
    files, before = len(os.listdir("/proc/self/fd")), descendants()
    memory = held(before)
    temporary = set(os.listdir("/tmp"))
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(lambda n: sandbox.run("open('note', 'w')", limits=Limits(seconds=30)), range(1000)))
    assert all(outcome.is_success for outcome in outcomes)
    assert len(os.listdir("/proc/self/fd")) == files
    assert descendants() <= before
    assert held(before) < memory + 2048
    assert not [name for name in set(os.listdir("/tmp")) - temporary if name.startswith("unmask-")]


LEAVES = """
import os
os.makedirs("a/b")
os.symlink("/tmp", "a/link")
for name in ("a/b", "a", "."): os.chmod(name, 0)
if os.fork() == 0:
    os.setsid()
    while True: pass
"""


def test_no_folder_and_no_orphan_is_left(either: Sandbox) -> None:
    folders, before = scratch_folders(), descendants()
    for program in (LEAVES, "import os\nos.rmdir(os.getcwd())", "print(1)"):
        outcome = either.run(program, limits=SHORT)
        assert outcome.ending == "exit"
        assert descendants() <= before
    assert comes_true(lambda: scratch_folders() <= folders)


KEY = """
import ctypes, os, platform
keyctl, add_key = {"x86_64": (250, 248), "aarch64": (219, 217)}[platform.machine()]
libc = ctypes.CDLL(None)
print(libc.syscall(keyctl, 10, -3, b"user", b"unmask", 0) > 0)
libc.syscall(add_key, b"user", b"unmask", b"x", 1, -3)
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the numbers of its system calls")
def test_a_job_has_neither_the_keys_of_the_host_nor_of_the_job_before(sandbox: Sandbox) -> None:
    join = "import ctypes, platform; ctypes.CDLL(None).syscall({'x86_64': 250}.get(platform.machine(), 219), 1, None)\n"
    host = f"{join}{KEY}\nfrom unmask.tasks.sandbox import Sandbox\nwith Sandbox() as s:\n    print(s.run(KEY).output, s.run(KEY).output)"
    said = subprocess.run([sys.executable, "-c", f"KEY = {KEY!r}\n{host}"], check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["False"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bubblewrap", "unsafe"])
def test_nothing_outlives_a_killed_process(kind: str, sandbox: Sandbox) -> None:
    bombs = [FORKS, ORPHAN, DEAF, LEAVES, "open('big', 'w').write('x' * 99999)\nimport time\ntime.sleep(99)"]
    program = (
        "import sys, threading\nfrom unmask.tasks.sandbox import Limits, Sandbox\n"
        f"s = Sandbox({kind!r})\ns.start()\n"
        f"for p in {bombs!r}: threading.Thread(target=s.run, args=(p, '', Limits(seconds=60))).start()\nprint(flush=True)"
    )
    folders, before = scratch_folders(), descendants()
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        time.sleep(1)
        begun = descendants() - before - {process.pid}
        process.kill()
    assert len(begun) > 5
    assert comes_true(lambda: not any(map(is_running, begun)) and scratch_folders() <= folders)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user to become another")
def test_another_user_has_a_sandbox_too(sandbox: Sandbox) -> None:
    program = (
        "import os\nfrom unmask.tasks.sandbox import Limits, Sandbox\n"
        "os.setgroups([]); os.setgid(4321); os.setuid(4321)\n"
        f"with Sandbox() as s: print(s.run('import os\\nprint(os.getuid())').output, s.run({FORKS!r}, limits=Limits(seconds=1)).ending)"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["4321", "time"]


def test_a_server_that_is_lost_costs_nobody_a_reward(sandbox: Sandbox) -> None:
    with Sandbox() as own, ThreadPoolExecutor(1) as thread:
        assert own._server is not None
        running = thread.submit(examine, own, [f"import time\ntime.sleep(1)\n{RIGHT}"], TWO_TESTS, Limits(seconds=20))
        time.sleep(0.5)
        os.killpg(own._server.pid, signal.SIGKILL)
        assert running.result() == [True, True]


class Stumbling(Sandbox):
    """A sandbox in which some jobs cannot begin: their limits are none that a kernel knows."""

    def __init__(self, stumbles: set[int]) -> None:
        super().__init__()
        self.stumbles, self.begun = stumbles, 0

    def job(
        self, role: str, arguments: Mapping[str, Any], limits: Limits, channel: socket.socket | None = None
    ) -> sandboxes.Job:
        is_stumble = self.begun in self.stumbles
        self.begun += 1
        return super().job(role, arguments, replace(limits, processes=2**70) if is_stumble else limits, channel)


def test_a_job_that_cannot_begin_is_lost(either: Sandbox) -> None:
    assert either.run("print(1)", limits=Limits(processes=2**70)).ending == "lost"
    assert either.run("print(1)").output == "1\n"


@pytest.mark.parametrize("stumble", [0, 1])
def test_a_job_that_cannot_begin_costs_nobody_a_reward(sandbox: Sandbox, stumble: int) -> None:
    with Stumbling({stumble}) as own:
        assert examine(own, [RIGHT], TWO_TESTS) == [True, True]
    with Stumbling({stumble, stumble + 2}) as own, pytest.raises(SandboxLostError, match="lost twice"):
        examine(own, [RIGHT], TWO_TESTS)


def test_a_program_that_cannot_begin_is_tried_again(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    printing = {"tests": [{"input": "a", "output": "a"}]}
    with Stumbling({0, 2, 3}) as own:
        monkeypatch.setattr(Code, "sandbox", own)
        assert Code().reward(printing, "print(input())") == 1
        with pytest.raises(SandboxLostError, match="lost twice"):
            Code().reward(printing, "print(input())")


def test_a_server_that_hangs_costs_nobody_a_reward(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "GRACE_SECONDS", 0.5)
    with Sandbox() as own:
        assert own._server is not None
        os.killpg(own._server.pid, signal.SIGSTOP)
        assert examine(own, [RIGHT], TWO_TESTS, SHORT) == [True, True]


def test_a_program_that_ends_its_server_costs_only_its_own_reward() -> None:
    task = Code(CodeSettings(sandbox="unsafe"))
    example = {"tests": ["assert f(1) == 2"]}
    judgements, errors = judge_safely(task, [example] * 2, ["import os\nos.kill(os.getppid(), 9)", RIGHT])
    task.sandbox.close()
    assert [(judgement.reward, judgement.verdict) for judgement in judgements] == [
        (0, Verdict.UNSURE),
        (1, Verdict.RIGHT),
    ]
    assert isinstance(errors[0], SandboxLostError) and len(errors) == 1


def test_the_sandbox_ends_with_its_process(sandbox: Sandbox) -> None:
    program = "from unmask.tasks.sandbox import Sandbox; s = Sandbox(); s.start(); print(s._server.pid)"
    process = int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            return
        time.sleep(0.05)
    raise AssertionError("the server outlived its process")


def test_without_bubblewrap_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnmaskError, match=r"bubblewrap is missing; install bubblewrap .* or set sandbox: unsafe"):
        Sandbox().run("print(1)")


def test_where_namespaces_are_forbidden_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent == Path(tempfile.gettempdir()):  # what follows is everybody's
            break
        parent.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "ENVIRONMENT", {**bubblewrap.ENVIRONMENT, "PATH": f"{tmp_path}:/usr/bin:/bin"})
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UnmaskError, match=r"No permissions to create new namespace.*set sandbox: unsafe"):
        Sandbox().run("print(1)")


CHEATS = {
    "exit": "import sys\nsys.exit(0)",
    "exit in the function": "import os\ndef f(x): os._exit(0)",
    "equals everything": "class A:\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\ndef f(x): return A()",
    "int that equals everything": "class A(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__\ndef f(x): return A()",
    "str that equals everything": "class A(str):\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\ndef f(x): return A()",
    "prints what the examiner prints": "print('loaded\\n0 1\\n1 1\\ndone', flush=True)\ndef f(x): return 0",
    "writes to every file": (
        "import os\nfor fd in range(1, 64):\n    try: os.write(fd, b'loaded\\n0 1\\n1 1\\ndone\\n')\n    except OSError: pass\n"
        "def f(x): return 0"
    ),
    "answers for itself": (
        'import os\nfor fd in range(3, 64):\n    try: os.write(fd, b\'["list", "return", ["list"], ["list"]]\\n\' * 9)\n'
        "    except OSError: pass\ndef f(x): return 0"
    ),
    "no json": "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff[[[[\\n')\n    except OSError: pass\n",
    "patches builtins": (
        "import builtins, operator, json\nbuiltins.AssertionError = ValueError\nbuiltins.all = lambda *a: True\n"
        "operator.eq = lambda *a: True\njson.loads = None\ndef f(x): return 0"
    ),
    "patches its own side": (
        "import sys\nplain = sys.modules['unmask.tasks.sandbox.inside.plain']\n"
        'plain.dumps = lambda *a: b\'["list", "return", true, ["list"]]\\n\'\ndef f(x): return 0'
    ),
    "reads its memory": (
        "import gc\ndef f(x):\n    texts = [o for o in gc.get_objects() if isinstance(o, (str, bytes, dict, list))]\n"
        "    return 2 if any('ass' + 'ert' in repr(t)[:99999] and '=' + '= 2' in repr(t)[:99999] for t in texts[:2000]) else 0"
    ),
    "raises success": "def f(x): raise StopIteration(2)",
    "NotImplemented": "def f(x): return NotImplemented",
    "deep": "def f(x):\n    a = []\n    for _ in range(900): a = [a]\n    return a",
    "cyclic": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "exponential": "def f(x):\n    a = []\n    for _ in range(60): a = [a, a]\n    return a",
    "writes to the files of others": (
        "import os, time\ndef write():\n    end = time.monotonic() + 0.6\n    while time.monotonic() < end:\n"
        "        for p in filter(str.isdigit, os.listdir('/proc')):\n            for d in range(3, 12):\n                try:\n"
        "                    if 'output' in os.readlink(f'/proc/{p}/fd/{d}'):\n                        file = os.open(f'/proc/{p}/fd/{d}', os.O_WRONLY)\n"
        "                        os.pwrite(file, b'loaded\\n0 1\\n1 1\\ndone\\n', 0)\n                        os.close(file)\n"
        "                except OSError: pass\n    os._exit(0)\ndef f(x):\n    if os.fork() == 0: write()\n    time.sleep(0.2)\n    return 0"
    ),
    "huge": "def f(x): return 'x' * (1 << 28)",
    "endless bytes": "import os\ndef f(x):\n    while True:\n        for fd in range(3, 64):\n            try: os.write(fd, b'x' * 65536)\n            except OSError: pass",
}


@pytest.mark.parametrize("how", CHEATS)
def test_no_cheat_passes_a_test(how: str, either: Sandbox) -> None:
    limits = Limits(seconds=0.7, memory_bytes=256 * 2**20)
    assert examine(either, [CHEATS[how]], TWO_TESTS, limits) == [False, False]
    assert examine(either, [RIGHT], TWO_TESTS) == [True, True]


def test_a_test_after_a_lost_process_gets_another(either: Sandbox) -> None:
    program = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    return x + 1"
    assert examine(either, [program], TWO_TESTS) == [False, True]
    assert examine(either, [program.replace("os._exit(0)", "\n        while True: pass")], TWO_TESTS, SHORT) == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("program", "tests", "passed"),
    [
        ("def f(x): yield from range(x)", ["assert list(f(3)) == [0, 1, 2]", "assert next(f(2)) == 0"], [True, True]),
        ("def f(x): x.sort()", ["a = [2, 1]\nf(a)\nassert a == [1, 2]"], [True]),
        (
            "def f(g, x): return g(x) + g(1)",
            ["assert f(lambda y: 2 * y, 3) == 8", "assert f(abs, -3) == 4"],
            [True, True],
        ),
        (
            "def f(x): raise ValueError('bad')",
            ["try:\n    f(1)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'bad'"],
            [True],
        ),
        (
            "class f:\n    def __init__(self): self.a = []\n    def push(self, x): self.a.append(x)\n    def pop(self): return self.a.pop()",
            ["s = f()\ns.push(3)\nassert s.pop() == 3", "assert f().a == []"],
            [True, True],
        ),
        ("from collections import *\ndef f(x): return Counter(x)", ["assert f('aab') == {'a': 2, 'b': 1}"], [True]),
        (
            "def f(x): return (float('inf'), 10**5000, {1: {2}}, b'x', None, 1j)",
            ["assert f(1) == (float('inf'), 10**5000, {1: {2}}, b'x', None, 1j)", "assert type(f(1)) is tuple"],
            [True, True],
        ),
        ("def f(x): return '\\ud800é'", ["assert f(1) == '\\ud800é'"], [True]),
        ("f = sorted", ["assert f([2, 1]) == [1, 2]"], [True]),
        ("f = 3", ["assert f(1) == 3"], [False]),
        ("def g(x): return 1", ["assert f(1) == 1"], [False]),
        ("def f(x):\n    print('noise', flush=True)\n    return 1", ["assert f(1) == 1"], [True]),
        ("def f(x): exit(x)", ["assert f(1) == 1", "f(2)"], [False, False]),
    ],
)
def test_values_of_all_kinds_come_through(program: str, tests: list[str], passed: list[bool], sandbox: Sandbox) -> None:
    examination = Examination(names=("f",), steps=tuple(Step(test, True) for test in tests))
    assert examine(sandbox, [program], examination) == passed
