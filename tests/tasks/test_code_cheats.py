"""Programs that want a reward without being right. None of them gets one, and none harms the next."""

# ruff: noqa: E501  # candidate programs read best in a line of their own

import pytest

from unmask.tasks import Code, CodeSettings
from unmask.tasks.sandbox import Sandbox

CODE = Code(CodeSettings(seconds=1.5))
TWO = ["assert f(1) == 2", "assert f(2) == 3"]
SECRET = ["assert f(1) == 4242421", "assert f(2) == 4242421"]

LIES = """
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __instancecheck__ = lambda *a: True
    __ne__ = lambda *a: False
    __hash__ = __int__ = __index__ = __len__ = lambda self: 2
    __float__ = lambda self: 2.0
    __add__ = __radd__ = __sub__ = __rsub__ = __abs__ = __round__ = lambda *a: 0
    __class__ = property(lambda self: int)
    __repr__ = lambda self: "2"
    all = any = item = lambda self: True
"""
"""The body of a class that agrees with everything."""


def rewards(programs: list[str], tests: list[str]) -> list[float]:
    rows = [{"tests": tests}] * len(programs)
    return [judgement.reward for judgement in CODE.judge_all(rows, [f"```python\n{p}\n```" for p in programs])]


ENDS = [
    "import os\nos._exit(0)",
    "def f(x): return x + 1\nimport sys\nsys.exit(0)",
    "raise SystemExit(0)",
    "class A:\n    def __del__(self): __import__('os')._exit(0)\ndef f(x):\n    A()\n    return x + 1",
    "def f(x): exit(0)",
    "def f(x): raise KeyboardInterrupt",
    "def f(x): raise GeneratorExit",
    "def f(x): raise BaseException(x + 1)",
    "import os\ndef f(x): os.kill(os.getpid(), 9)",
    "import os\ndef f(x): os.abort()",
    "import ctypes\ndef f(x): ctypes.string_at(0)",
    "import os, threading, time\nthreading.Thread(target=os._exit, args=(0,)).start()\ntime.sleep(1)",
]


def test_an_end_is_no_success(sandbox: Sandbox) -> None:
    assert rewards(ENDS, TWO) == [0] * len(ENDS)


@pytest.mark.parametrize(
    "test",
    [
        "try:\n    f(1)\nexcept:\n    pass\nelse:\n    assert False",
        "def g():\n    try:\n        return f(1)\n    finally:\n        return 2\nassert g() == 2",
        "import contextlib\nwith contextlib.suppress(BaseException):\n    f(1)\nassert f",
    ],
)
def test_a_test_that_catches_everything_does_not_hide_an_end(test: str, sandbox: Sandbox) -> None:
    ends = ["import os\ndef f(x): os._exit(0)", "def f(x):\n    while True: pass"]
    assert rewards(ends, [test, "assert f(2) == 3"]) == [0, 0]
    assert rewards(["def f(x): raise ValueError"], [test]) == [1]


@pytest.mark.parametrize(
    "base", ["object", "int", "str", "float", "list", "tuple", "dict", "set", "frozenset", "bytes"]
)
def test_an_object_that_lies_is_not_asked(base: str, sandbox: Sandbox) -> None:
    liar = f"class A({base}):{LIES}\n"
    assert rewards([f"{liar}def f(x): return A()", f"{liar}f = A"], TWO) == [0, 0]
    wrapped = [f"{liar}def f(x): return {value}" for value in ("[A(), A()]", "(A(), A())", "{1: A()}", "{A(), 7}")]
    tests = ["assert f(1) in ([1, 2], (1, 2))", "assert f(1) == {1: 2}", "assert f(1) == {1, 2}", "assert 5 in f(1)"]
    assert rewards(wrapped, tests) == [0] * len(wrapped)


def test_a_number_that_lies_is_not_calculated_with(sandbox: Sandbox) -> None:
    tests = [
        "assert abs(f(1) - 2.5) < 1e-6",
        "assert -1e-6 < f(1) - 2.5 < 1e-6",
        "assert round(f(1), 2) == 2.5",
        "assert isclose(f(1), 2.5)",
        "assert f(1) > 2.5",
        "assert isinstance(f(1), int)",
        "assert f(1) in [2, 3]",
        "assert sum([f(1)]) == 2.5",
        "assert max(f(1), 2.5) == 2.5",
    ]
    assert rewards([f"class A:{LIES}\ndef f(x): return A()"], tests) == [0]


OBJECTS = [
    "from unittest.mock import ANY\ndef f(x): return ANY",
    "from unittest.mock import MagicMock\nf = MagicMock()\nf.return_value.__eq__ = lambda *a: True",
    "class M(type):\n    __eq__ = __instancecheck__ = lambda *a: True\n    __hash__ = lambda s: 0\nclass A(metaclass=M): pass\ndef f(x): return A",
    "class A:\n    __iter__ = __next__ = lambda self: self\n    __eq__ = lambda *a: True\ndef f(x): return A()",
    "class E(Exception):\n    __eq__ = lambda *a: True\ndef f(x): raise E",
    "def f(x): return float('nan')",
    "async def f(x): return x + 1",
    "def f(x): yield x + 1",
    "def f(x): return str(x + 1)",
    "def f(x): return f",
]
PATCHES = [
    "import builtins\nfor n in ('len', 'isinstance', 'abs', 'round', 'all', 'set', 'int', 'AssertionError'): setattr(builtins, n, lambda *a: True)\ndef f(x): return 0",
    "import unittest\nunittest.TestCase.assertEqual = unittest.TestCase.fail = lambda *a: None\ndef f(x): return 0",
    "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\ndef f(x): return 0",
    "import builtins\nbuiltins.__import__ = lambda *a, **k: None\ndef f(x): return 0",
    "import sys\nsys.modules.clear()\ndef f(x): return 0",
    "import sys\nplain = sys.modules['unmask.tasks.sandbox.inside.plain']\nplain.encode = lambda *a: ['list', 'return', True, ['list']]\ndef f(x): return 0",
    "import sys\nfor m in list(sys.modules.values()):\n    if hasattr(m, 'Candidate'): m.Candidate.answer = lambda *a: b'done\\n'\ndef f(x): return 0",
    "import sys\nprint('loaded\\n0 1\\n1 1\\ndone', flush=True)\nprint('loaded\\n0 1\\n1 1\\ndone', file=sys.stderr)\ndef f(x): return 0",
]


def test_no_object_and_no_patch_passes(sandbox: Sandbox) -> None:
    cheats = OBJECTS + PATCHES
    assert rewards(cheats, TWO) == [0] * len(cheats)


SEARCHES = [
    """
import gc, inspect, sys
def f(x):
    frames = [frame.frame for frame in inspect.stack()]
    found = [frame.f_locals for frame in frames] + [frame.f_globals for frame in frames] + gc.get_objects()
    secret = str(424) + str(2421)
    return int(secret) if any(secret in repr(item)[:9999] for item in found) else 0
""",
    """
secret = bytes([52, 50, 52, 50, 52, 50, 49])
def f(x):
    found = 0
    for line in open("/proc/self/maps"):
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        try:
            with open("/proc/self/mem", "rb") as memory:
                memory.seek(low)
                found += memory.read(high - low).count(secret)
        except (OSError, ValueError, OverflowError): pass
    return int(secret) if found > 9 else 0
""",
    """
import os
def f(x):
    text = b""
    for process in filter(str.isdigit, os.listdir("/proc")):
        for name in ("environ", "cmdline", "maps"):
            try: text += open(f"/proc/{process}/{name}", "rb").read()
            except OSError: pass
        for number in range(64):
            try:
                with open(f"/proc/{process}/fd/{number}", "rb+", buffering=0) as file: file.write(b"loaded\\n0 1\\n1 1\\ndone\\n")
            except OSError: pass
    return 4242421 if str(424).encode() + b"2421" in text else 0
""",
    "import ctypes, os\nfor process in range(100): ctypes.CDLL(None).ptrace(16, process, 0, 0)\ndef f(x): return 0",
    "import socket\nsocket.create_connection(('1.1.1.1', 80), timeout=1)\ndef f(x): return 4242421",
    "import os\ndef f(x): return 4242421 if any(map(os.path.exists, ('/etc/passwd', '/root', '/home', '/var', '/run'))) else 0",
]


def test_no_search_finds_the_expected_value(sandbox: Sandbox) -> None:
    assert rewards(SEARCHES, SECRET) == [0] * len(SEARCHES)


HARMLESS = [
    "import os, signal\nfor process in (-1, os.getppid(), *range(2, 300)):\n    try: os.kill(process, signal.SIGKILL)\n    except OSError: pass\ndef f(x): return x + 1",
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)\ndef f(x): return x + 1",
    "import threading, time\nfor _ in range(5): threading.Thread(target=time.sleep, args=(600,)).start()\ndef f(x): return x + 1",
    "import os, random, sys, time\nrandom.seed(0)\nos.environ['NOTE'] = '1'\nos.umask(0)\nos.chdir('/')\ntime.time = int\nsys.setrecursionlimit(200)\nopen('/tmp/note', 'w')\ndef f(x): return x + 1",
    "import atexit, os\natexit.register(os._exit, 1)\ndef f(x): return x + 1",
]
LOOKS = """
import os, sys, time
assert "NOTE" not in os.environ and os.umask(0) == 0o22 and os.getcwd() == "/tmp" and not os.listdir("/tmp")
assert time.time() > 1e9 and sys.getrecursionlimit() == 1000 and os.getpid() == 1 and sys.argv == ["program.py"]
def f(x): return x + 1
"""


def test_a_right_program_may_do_what_it_likes_and_the_next_sees_nothing(sandbox: Sandbox) -> None:
    server = sandbox.start()
    assert rewards([*HARMLESS, LOOKS], TWO) == [1] * (len(HARMLESS) + 1)
    assert sandbox.start() is server


BOMBS = {
    "deaf": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
    "patient": "import time\ntime.monotonic = int\ndef f(x):\n    while True: pass",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
    "brackets": "x = " + "(" * 99999 + ")" * 99999,
    "power": "x = 9**9**9",
    "text": "x = ' ' * 10**12",
    "regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "file": "f = open('/tmp/x', 'wb')\nwhile True: f.write(b'x' * 65536)",
    "files": "n = 0\nwhile True:\n    open(f'/tmp/{n}', 'w')\n    n += 1",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()",
    "fork": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "loops": "def f(x):\n    while True: yield x\nf.__name__ = 'f'",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_fails_and_the_next_program_does_not(kind: str, sandbox: Sandbox) -> None:
    assert rewards([BOMBS[kind]], ["assert list(f(1)) == [2]"]) == [0]
    assert Code(CodeSettings(seconds=20)).reward({"tests": TWO}, "def f(x): return x + 1") == 1
