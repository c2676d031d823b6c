"""Right programs in odd forms: each is to be found in its response, and to do what Python does."""

# ruff: noqa: E501  # candidate programs read best in a line of their own

import pytest

from unmask.tasks import Code, CodeSettings
from unmask.tasks.code import extract_program
from unmask.tasks.sandbox import Sandbox

CODE = Code(CodeSettings(seconds=20))
F = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    "response",
    [
        F,
        f"\ufeff{F}",
        F.replace("    ", "\t"),
        f"```python\n\ufeff{F}```",
        f"\ufeff```python\n{F}```",
        f"Sure!\n```PY\n{F}```   \nDone.",
        f"```python3.11\n{F}```",
        f"```{{.python}}\n{F}```",
        f'```python title="a.py"\n{F}```',
        f"~~~python\n{F}~~~",
        f"~~~\n{F}",
        f"````python\n{F}````",
        f"```\n{F}```\n```\n",
        f"```python\n{F}```<|endoftext|>",
        f"```python\n{F.rstrip()}```\nIt adds one.",
        f"```python\n{F}    ```\nIt adds one.",
        f"Answer: ```python\n{F}```",
        f"- ```python\n  {F.replace(chr(10), chr(10) + '  ')}```",
        f"1. First\n   ```python\n   {F.replace(chr(10), chr(10) + '   ')}```",
        f"```python\n{F}```\n".replace("\n", "\r\n"),
        f"```python\n{F}```\n".replace("\n", "\r"),
        f"```f``` it is:\n```python\n{F}```",
        f"```python\n{F}```\nOutput:\n```\n2\n```",
        f"```python\n{F}```\nUse it so:\n```python\nprint(f(1))\n```",
        f"```python\n{F}```\n```bash\npython a.py\n```",
        f"```python\ndef f(x): return 0\n```\nNo:\n```python\n{F}```",
        f"```python\ndef f(x): return 0\n\n```python\n{F}```",
        "```python\ndef f(x):\n    '''Add.\n\n    ```\n    f(1)\n    ```\n    '''\n    return x + 1\n```",
        "```python\ndef f(x):\n    '''Add.\n\n    ```python\n    f(1)\n    ```\n    '''\n    return x + 1",
        "- So:\n  ```python\n  S = '''\n x'''\n  def f(x):\n      return x + 1\n  ```",
        f"```python\nS = '\u2028'\n{F}```",
        "```python\nimport builtins\nf = lambda x: x + 1\nif __name__ == '__main__':\n    raise SystemExit(f(int(input())))\n```",
        "```python\nfrom functools import *\nfrom operator import add\nf: object = partial(add, 1)\n```",
    ],
)
def test_the_program_is_found(response: str, sandbox: Sandbox) -> None:
    assert CODE.reward({"tests": ["assert f(1) == 2", "assert f(2) == 3"]}, response) == 1


@pytest.mark.parametrize(
    "response", ["```" * 3, "~" * 50_000 + "`", "```python\n" * 5_000, "`" * 50_000, " " * 50_000 + "```"]
)
def test_no_response_takes_long_to_read(response: str) -> None:
    assert isinstance(extract_program(response, ["f"]), str)


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(x): return x.keys()", ["assert f({1: 2}) == {1}", "assert list(f({1: 2})) == [1]"]),
        ("def f(x): return x.items()", ["assert f({1: 2}) == {(1, 2)}", "assert dict(f({1: 2})) == {1: 2}"]),
        ("def f(x): return x.values()", ["assert sum(f({1: 2})) == 2", "assert f({1: 2}) != [2]"]),
        ("def f(a, b): return b - a", ["assert f(date(2020, 1, 1), date(2020, 1, 3)) == timedelta(days=2)"]),
        ("from collections import *\ndef f(x): return Counter(x)", ["assert f('aab').most_common(1) == [('a', 2)]"]),
        (
            "from collections import *\ndef f(x):\n    d = OrderedDict.fromkeys(x)\n    d.move_to_end(x[0])\n    return d",
            ["assert list(f('ab')) == ['b', 'a']", "assert f('ab') == OrderedDict.fromkeys('ba')"],
        ),
        ("def f(x, y=()): x.append(1)", ["a = []\nf(x=a)\nassert a == [1]", "a = deque()\nf(a)\nassert a == deque([1])"]),
        ("def f(x): return sum(x)", ["assert f(iter([1, 2])) == 3", "assert f(i for i in range(3)) == 3", "assert f({1: 2}.values()) == 2"]),
        ("class E(ValueError): pass\ndef f(x): raise E('bad')", ["try:\n    f(1)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'bad'"]),
        ("def f(x): return {}[x]", ["try:\n    f('a')\n    assert False\nexcept KeyError as e:\n    assert e.args == ('a',)"]),
        ("import json\nf = json.loads", ["try:\n    f('{')\n    assert False\nexcept ValueError:\n    pass"]),
        ("def f(g):\n    try: return g(0)\n    except ZeroDivisionError: return 'caught'", ["assert f(lambda x: 1 // x) == 'caught'"]),
        ("async def f(x): return x + 1", ["assert asyncio.run(f(1)) == 2"]),
        ("class f:\n    def __bool__(self): return False", ["assert not f()", "assert f() is not None"]),
        ("def f(x):\n    if x > 5: exit()\n    return x", ["assert f(1) == 1"]),
        ("from multiprocessing import Pool\ndef g(x): return x + 1\ndef f(x):\n    with Pool(2) as pool: return pool.map(g, [x])", ["assert f(1) == [2]"]),
        ("def f(x): return hash('a') == hash('a') and len(str({'a', 'b'}))", ["assert f(1) == 10"]),
        ("def f(x): return x if x < 2 else float(x)", ["assert f(1) == 1.0", "assert f(2) == 2", "assert math.isclose(f(3), 3)"]),
    ],
)  # fmt: skip
def test_values_mean_what_they_do_in_python(program: str, tests: list[str], sandbox: Sandbox) -> None:
    imports = ["from datetime import date, timedelta", "import asyncio"]
    assert CODE.reward({"tests": tests, "test_imports": imports}, program) == 1


FAST = """
import os, sys
from io import BytesIO, IOBase
class Writer(IOBase):
    def __init__(self, file): self.file, self.held = file.fileno(), BytesIO()
    def write(self, text): self.held.write(text.encode())
    def flush(self): os.write(self.file, self.held.getvalue()); self.held = BytesIO()
sys.stdout = Writer(sys.stdout)
print(input())
"""


@pytest.mark.parametrize(
    "program",
    [
        "print(input())\nexit()",
        "print(input())\nquit(0)",
        "import sys\nprint(input(), end='')\nsys.exit()",
        "import os\nprint(input(), flush=True)\nos._exit(0)",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print(input()))).start()",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\nprint(input())",
        "out = open(1, 'w')\nout.write(input())",
        "import atexit, io, sys\nsys.stdout = io.StringIO()\natexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\nprint(input())",
        "class A:\n    def __del__(self): print('b c')\na = A()",
        "import sys\nprint(input())\nsys.stdout.close()",
        "import sys\nfile = open(sys.argv[1]) if len(sys.argv) > 1 else sys.stdin\nprint(file.read())",
        "import argparse\nargparse.ArgumentParser().parse_args()\nprint(input() + '  ')\nprint()",
        "import os\nprint(os.read(0, 99).decode())",
        "print(open('/dev/stdin').read())",
        "import asyncio\nasync def main(): print(input())\nif __name__ == '__main__': asyncio.run(main())",
        FAST,
    ],
)
def test_a_program_ends_as_under_an_interpreter(program: str, sandbox: Sandbox) -> None:
    outcome = sandbox.run(program, "b c\n", CODE.limits)
    assert (outcome.ending, outcome.code, outcome.output.strip()) == ("exit", 0, "b c")
    assert CODE.reward({"tests": [{"input": "b c\r\n", "output": "b c"}]}, f"```python\n{program}\n```") == 1


@pytest.mark.parametrize(
    "program", ["print(input())\nexit(1)", "print(input())\n1 / 0", "print()\nprint(input())", "print(input(':'))"]
)
def test_a_program_that_fails_or_prints_more_is_wrong(program: str, sandbox: Sandbox) -> None:
    assert CODE.reward({"tests": [{"input": "a", "output": "a"}]}, f"```python\n{program}\n```") == 0


def test_tests_in_all_forms(sandbox: Sandbox) -> None:
    tests = [
        "assert f(1) == 2 and f(2) == 3 or f(3) == 9, 'no'",
        "assert (\n    f(1)\n    == 2\n), f'message {f(1)}'",
        "for i in range(3):\n    assert f(i) == i + 1",
        "assert all(f(i) == i + 1 for i in range(5))",
        "assert math.isclose(f(1), 2) and isclose(f(1), 2)",
        "assert set([f(1)]) == set([2])",
        "assert not f(-1); assert f(2) == 3",
        "assert sorted([3, 1], key=f) == [1, 3] and list(map(f, [1])) == [2]",
        "assert f(*[1]) == 2 and f(**{'x': 1}) == 2 and {f(1): 1} == {2: 1}",
        "a = f(1)\nassert a == 2",
    ]
    assert CODE.reward({"tests": tests}, F) == 1
    assert CODE.reward({"tests": tests}, F.replace("1", "9")) == 0


def test_an_import_of_the_tests_is_theirs(sandbox: Sandbox) -> None:
    row = {"test_list": ["assert f(1) == date(2020, 1, 1)"], "test_imports": ["from datetime import date"]}
    assert CODE.reward(row, "import datetime\ndef f(x): return datetime.date(2020, 1, x)") == 1
    assert CODE.reward(row, "def date(*a): return 0\ndef f(x): return 0") == 0


def test_what_says_nothing_about_the_program_is_no_test(sandbox: Sandbox) -> None:
    assert CODE.reward({"tests": ["assert True, 'so far'", "assert 1 == 1", "assert f(1) == 2"]}, "f = None") == 0


def test_the_beginning_of_a_function_earns_nothing(sandbox: Sandbox) -> None:
    row = {
        "prompt": 'def f(x):\n    """None for 0, else the next."""\n',
        "entry_point": "f",
        "test": "def check(candidate):\n    assert candidate(0) is None\n    assert not candidate(0)\n",
    }
    for response in ("", "```python\n```", "```python\nx = 1\n```", "```python\ndef g(x): return 1\n```"):
        assert CODE.reward(row, response) == 0, response
    for response in (
        "    return x + 1 if x else None",
        "\treturn x + 1 if x else None",
        "return None",
        "def f(x): return None",
    ):
        assert CODE.reward(row, f"{response}\n") == 1, response
