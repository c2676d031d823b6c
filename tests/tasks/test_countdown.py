import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shared_files import data_file, reward_cases
from unmask.errors import UnmaskError
from unmask.tasks import Countdown, CountdownSettings
from unmask.tasks.countdown import reaches


def test_the_shared_cases() -> None:
    for case in reward_cases("countdown"):
        began = time.perf_counter()
        assert Countdown().reward(Countdown().example(case), case["response"]) == float(case["correct"]), case["why"]
        assert time.perf_counter() - began < 0.05


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("44-19+35", True),
        ("44 − 19 + 35 = 60", True),
        ("(44-19)+35=60.0", True),
        (r"44 - 19 + 35 = 60", True),
        ("-19+44+35", True),
        ("[44-19]+35", True),
        (r"\text{44-19+35}", True),
        (r"\mathbf{44 - 19 + 35} = \text{60}", True),
        (r"\displaystyle 44{-}19{+}35", True),
        ("`44-19+35`", True),
        ("44-19+35.", True),
        ("44\N{SMALL HYPHEN-MINUS}19\N{FULLWIDTH PLUS SIGN}35", True),
        ("44-19+~35", False),
        ("44-19+35==60", False),
        ("44-19+35²", False),
        ("44-19+35 # comment", False),
        ("60=44-19+35", False),
        ("44-19+35=6e1", False),
        ("44-19+35=61", False),
        ("60", False),
        ("44+35-19-0", False),
        ("44-19", False),
        ("44+19-35", False),
        ("44-19+35+44-44", False),
        ("44-19+35=60=60", False),
        ("44--19", False),
        ("__import__('os')", False),
        ("44-19+3\u0665", False),
        ("", False),
        ("(" * 400, False),
        ("-" * 400 + "44", False),
        ("44-19+35)", False),
    ],
)
def test_expressions(answer: str, is_right: bool) -> None:
    assert reaches([44, 19, 35], 60, answer) is is_right


def test_division_is_exact() -> None:
    assert reaches([3, 3, 8, 8], 24, r"8 \div (3 - 8 / 3)")
    assert not reaches([7, 2], 3, "7/2")
    assert not reaches([1, 1, 1], 1, "1/(1-1)")
    assert reaches([3, 3, 8, 8], 24, r"\frac{8}{3-\frac{8}{3}}")
    assert reaches([100, 25, 4], 1, r"\cfrac{\frac{100}{25}}{4}")
    assert reaches([8, 2], 4, r"\frac82")
    assert reaches([2, 3, 4], 24, r"2\ast3 ✕ 4")
    assert not reaches([2, 3], 6, "2(3)"), "a sign between two numbers must be written"
    assert reaches([3, 5, 5], 3, "3*(5/5)")
    assert not reaches([5, 3, 3], 3, "3*(5/5)"), "5 twice, 3 once"


def test_answers_in_tags_count_and_the_last_box_comes_first() -> None:
    example = {"numbers": [2, 3], "target": 6}
    assert Countdown().reward(example, "<answer>2*3</answer>") == 1
    assert Countdown().reward(example, r"\boxed{2+3} no: \boxed{2*3}") == 1
    assert Countdown().reward(example, "2*3") == 0
    assert Countdown().reward(example, "<answer>2*3</answer> or <answer>2+3") == 0


@given(st.text(alphabet="0123456789+-*/()=. ×÷−{}\\", max_size=80) | st.text(max_size=80))
def test_any_text_gets_a_verdict(answer: str) -> None:
    assert reaches([1, 2, 3], 6, answer) in (True, False)


def test_made_problems_have_their_solution_and_training_never_sees_those_of_evaluation() -> None:
    task = Countdown()
    train = [task.train()[index] for index in range(300)]
    held_out = [task.evaluation()[index] for index in range(300)]
    assert all(task.reward(example, task.solution(example)) == 1 for example in train + held_out)
    assert not {tuple(sorted(e["numbers"])) for e in train} & {tuple(sorted(e["numbers"])) for e in held_out}
    assert all(len(e["numbers"]) == 4 for e in [Countdown(CountdownSettings(numbers=4)).train()[i] for i in range(20)])


def test_the_public_file_and_its_field_names(tmp_path: Path) -> None:
    examples = Countdown(CountdownSettings(evaluation=str(data_file("countdown_cd3_test.jsonl")))).evaluation()
    assert examples[0] == {"numbers": [30, 100, 93], "target": 23}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"nums": [1, 2], "target": 3}) + "\n" + json.dumps({"nums": [1, 2.5], "target": 3}))
    with pytest.raises(UnmaskError, match=r"rows.jsonl: row 2: nums=2.5: must be whole numbers"):
        Countdown(CountdownSettings(train=str(file))).train()
