"""The code task: which program is taken from a response, which tests it is given, what reward comes out."""

import ast
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.tasks import Code, CodeSettings
from unmask.tasks.code import extract_program, readings
from unmask.tasks.code_tests import assertions
from unmask.tasks.sandbox import Sandbox

Rows = Callable[[str], list[dict[str, Any]]]
CODE = Code(CodeSettings(seconds=1.5))
PATIENT = Code(CodeSettings(seconds=60))


def judged(task: Code, rows: list[dict[str, Any]], responses: list[str]) -> list[float]:
    return [judgement.reward for judgement in task.judge_all(rows, responses)]


def test_reward_cases(reward_cases: Rows, sandbox: Sandbox) -> None:
    cases = [case for case in reward_cases("rewards.jsonl") if case["kind"] == "code"]
    rewards = judged(CODE, cases, [case["response"] for case in cases])
    wrong = [case["why"] for case, reward in zip(cases, rewards, strict=True) if reward != case["pass_rate"]]
    assert cases and not wrong


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("humaneval.jsonl", 164), ("mbpp.jsonl", 974)])
def test_published_solutions_pass_and_changed_ones_fail(
    name: str, size: int, public_rows: Rows, sandbox: Sandbox
) -> None:
    rows = public_rows(name)
    solutions = [PATIENT.solution(row) for row in rows]
    assert judged(PATIENT, rows, solutions) == [1.0] * size
    changed = [change_returns(solution) for solution in solutions]
    rewards = judged(Code(CodeSettings(seconds=6)), rows, changed)
    assert all(reward < 1 for reward, old, new in zip(rewards, solutions, changed, strict=True) if old != new)
    assert sum(old != new for old, new in zip(solutions, changed, strict=True)) > 0.95 * size


def change_returns(solution: str) -> str:
    """The program with a text of no meaning in place of every value that it returns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an unusual escape
        tree = ast.parse(extract_program(solution))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
    for node in found:
        node.value = ast.Constant("changed")
    return f"```python\n{ast.unparse(tree)}\n```" if found else solution


def test_body_or_whole_function_after_a_prompt(public_rows: Rows, sandbox: Sandbox) -> None:
    row = public_rows("humaneval.jsonl")[38]  # its tests need a helper from the prompt
    body = row["canonical_solution"]
    for response in (
        body,
        f"```python\n{body}```",
        body.strip(),
        row["prompt"] + body,
        f"Here:\n```python\nimport math\ndef decode_cyclic(s):\n{body}```\nDone.",
    ):
        assert CODE.reward(row, response) == 1, response
    cheat = "def encode_cyclic(s):\n    return s\n\ndef decode_cyclic(s):\n    return s"
    assert CODE.reward(row, cheat) < 1  # the tests call the prompt's helper, not the response's


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\na\n```", "a\n"),
        ("```python\na\n```\nor\n```python\nb\n```\nthat is it", "b\n"),
        ("```py\na\n```\n```\nb\n```", "a\n"),  # the second is its output
        ("```\na\n```\n```\nb\n```", "b\n"),
        ("```python\na\n```\noutput:\n```text\nb\n```", "a\n"),
        ("```python\na\n", "a\n"),
        ("- so:\n  ```python\n  if a:\n      b\n  ```", "if a:\n    b\n"),
        ("    return a", "    return a"),
        ("```Python3\r\na\r\n```", "a\n"),
        ("````python\na\n````", "a\n"),
        ("```python\n```", ""),
        ("", ""),
    ],
)
def test_the_last_python_block_is_the_program(response: str, program: str) -> None:
    assert extract_program(response) == program


def test_every_assertion_is_a_test_of_its_own() -> None:
    loop = "for i in range(3):\n        assert candidate(i) == i"
    check = f"def check(candidate):\n    x = 1\n    assert candidate(x) == 1\n    {loop}\n"
    found = assertions((check,), entry_point="f")
    assert [step.is_test for step in found.steps] == [False, True, True]
    assert [step.is_test for step in assertions(("assert f(1) == 2; assert f(2) == 3",)).steps] == [True, True]


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        (["assert f(1) == 2"], ("f",)),
        (["assert sum(10, 15) == 6"], ("sum",)),
        (["assert set(f(1)) == set((1,))"], ("f",)),
        (["assert isclose(f(1), math.pi)"], ("f",)),
        (["assert gcd(4, 6) == 2"], ("gcd",)),
        (["assert list(map(f, [1])) == [2]"], ("f",)),
        (["assert math.isclose(f(1), 2)"], ("f",)),
        (["import re\nassert re.sub('a', 'b', f('a')) == 'b'"], ("f",)),
        (["def check(candidate):\n    assert candidate(1) == 1", "check(f)"], ("f",)),
    ],
)
def test_the_candidate_chooses_the_meaning_of_its_own_names_only(tests: list[str], names: tuple[str, ...]) -> None:
    assert assertions(tuple(tests)).names == names


def test_a_test_uses_the_real_helpers(sandbox: Sandbox) -> None:
    cheat = (
        "def isclose(*a): return True\nclass math:\n    isclose = isclose\nset = len = isclose\ndef f(x): return [x]"
    )
    tests = [
        "assert isclose(f(1), 2)",
        "assert math.isclose(f(1), 2)",
        "assert set(f(1)) == {2}",
        "assert len(f(1)) == 2",
    ]
    assert CODE.reward({"tests": tests}, cheat) == 0


def test_what_a_test_prints_is_no_verdict(sandbox: Sandbox) -> None:
    tests = ["print(f(1))", "assert f(1) == 2", "assert f(2) == 3"]
    cheat = "def f(x): return 'loaded\\n' + ''.join(f'{n} 1\\n' for n in range(9)) + 'done'"
    assert CODE.reward({"tests": tests}, cheat) == 0


def test_programs_that_read_and_print(sandbox: Sandbox) -> None:
    row = {"prompt": "Add.", "tests": [{"input": "1 2\n", "output": "3"}, {"input": "4 5", "output": "9\n"}]}
    assert CODE.reward(row, "```python\na, b = map(int, input().split())\nprint(a + b, '')\n```") == 1
    assert CODE.reward(row, "```python\nprint(3)\n```") == 0.5
    assert CODE.reward(row, "```python\nprint(3)\nraise SystemExit(1)\n```") == 0


def test_unsafe_is_asked_for_by_name_and_says_so() -> None:
    task = Code(CodeSettings(sandbox="unsafe"))
    assert task.conditions == {"sandbox": "unsafe"}
    assert task.reward({"tests": ["assert f(1) == 2"]}, "def f(x): return 2") == 1
    task.sandbox.close()


def test_prompts_show_the_tests(public_rows: Rows) -> None:
    row = public_rows("mbpp.jsonl")[10]
    assert CODE.prompt(row).startswith("You are an expert Python programmer, and here is your task: Write a python")
    assert CODE.prompt(row).endswith("tests:\n\n" + "\n".join(row["test_list"]) + "\n")
    row = public_rows("humaneval.jsonl")[0]
    assert CODE.prompt(row) == row["prompt"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "x"}, "test_list, tests or test is missing"),
        ({"tests": ["x = 1"]}, "the tests hold no assertion"),
        ({"tests": ["assert f(1) =="]}, "a test is not Python"),
        ({"tests": ["assert 1 == 1"]}, "the tests hold no assertion"),
        ({"tests": ["x = 1\nassert x"]}, "the tests call no function"),
        ({"tests": [{"input": ""}]}, "all must be texts, or all pairs of input and output"),
    ],
)
def test_broken_tests_are_an_error_and_no_reward(row: dict[str, Any], says: str) -> None:
    with pytest.raises(UnmaskError, match=says):
        CODE.example(row)
    with pytest.raises(UnmaskError, match=says):
        CODE.reward(row, "def f(x): return 1")


def test_tests_that_do_not_start_are_an_error_and_no_reward(sandbox: Sandbox) -> None:
    with pytest.raises(UnmaskError, match="the tests of f do not start: ModuleNotFoundError"):
        CODE.reward(
            {"test_list": ["assert f(1) == 1"], "test_imports": ["import no_such_module"]}, "def f(x): return 1"
        )


def test_a_missing_file_and_a_row_without_tests_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnmaskError, match=r"nowhere\.jsonl: no such file"):
        Code(CodeSettings(evaluation="nowhere.jsonl")).evaluation()
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "a", "test_list": ["assert f(1) == 1"]}\n{"text": "b"}\n')
    with pytest.raises(UnmaskError, match=r"rows\.jsonl: row 2: test_list, tests or test is missing or empty"):
        Code(CodeSettings(train=str(file))).train()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(
        st.text(), st.text().map(lambda text: f"```python\n{text}\n```"), st.binary().map(lambda b: b.decode("latin-1"))
    )
)
def test_any_text_gets_a_verdict(sandbox: Sandbox, response: str) -> None:
    assert CODE.reward({"tests": ["assert f(1) == 2"]}, response) == 0
    assert readings(extract_program(response), "def f(x):\n")
