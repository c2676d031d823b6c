import json
from pathlib import Path
from typing import Any

import pytest

from tests.shared_files import data_file, reward_cases
from unmask.errors import UnmaskError
from unmask.tasks import Gsm8k, Gsm8kSettings, Math, MathSettings, Verdict
from unmask.tasks.responses import last_boxed


def test_the_shared_cases_of_math() -> None:
    for case in reward_cases("math"):
        assert Math().reward(Math().example(case), case["response"]) == float(case["correct"]), case["why"]


def test_the_shared_cases_of_gsm8k() -> None:
    for case in reward_cases("gsm8k"):
        assert Gsm8k().reward(Gsm8k().example(case), case["response"]) == float(case["correct"]), case["why"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\{1, 2\}} so", r"\{1, 2\}"),
        (r"\boxed 7.", "7"),
        (r"\fbox{3}", "3"),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed", None),
        ("5", None),
        (r"\boxed{}", ""),
    ],
)
def test_the_last_box_is_read_whole(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


def test_what_takes_too_long_is_unsure_and_gets_no_reward() -> None:
    judgement = Math().judge({"answer": "1"}, r"\boxed{9^{9^{9^9}}}")
    assert judgement == (0.0, Verdict.UNSURE)


@pytest.mark.parametrize(
    ("response", "is_right"),
    [
        (r"\boxed{1080}", True),
        (r"\boxed{1,080}", True),
        (r"\boxed{\$1,080.00}", True),
        ("so she has\n#### 1,080", True),
        ("so she has\n#### 1080 dollars.", True),
        (r"#### 5 and then \boxed{1080}", True),
        (r"\boxed{1}", False),
        (r"\boxed{1080.5}", False),
        ("the answer is 1080", False),
        ("#### ", False),
        ("", False),
    ],
)
def test_word_problems(response: str, is_right: bool) -> None:
    example = Gsm8k().example({"answer": "540 + 540\n#### 1,080"})
    assert Gsm8k().reward(example, response) == float(is_right)


def test_every_gsm8k_answer_is_itself_and_no_other() -> None:
    file = str(data_file("gsm8k_test.jsonl"))
    task = Gsm8k(Gsm8kSettings(train=file, evaluation=file))
    examples = task.evaluation()
    assert len(examples) == 1_319
    answers = {int(str(example["answer"]).replace(",", "")) for example in examples}
    for example in examples:
        assert task.judge(example, task.solution(example)).verdict is Verdict.RIGHT
        own = int(str(example["answer"]).replace(",", ""))
        right = [answer for answer in answers if task.reward(example, rf"\boxed{{{answer}}}")]
        assert right == [own]


def test_every_math_solution_is_right_and_training_rows_are_read() -> None:
    task = Math(MathSettings(train=str(data_file("math_train_head.jsonl")), evaluation=str(data_file("math500.jsonl"))))
    assert len(task.train()) == 1_000 and len(task.evaluation()) == 500
    assert all(task.reward(example, f"Thus {task.solution(example)}.") == 1 for example in task.evaluation())
    assert task.prompt(task.train()[0]).startswith("Let $a$ and $b$ be the two real values")
    assert "\\boxed{}" in task.instruction


def test_the_field_names_of_the_public_sets(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"problem": "p", "solution": r"so \boxed{\frac{1}{2}}", "level": "Level 5", "type": "Algebra"},
        {"question": "q", "answer": 27, "id": 0},
        {"problem": "p", "answer": "27.0"},
    ]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows))
    examples = Math(MathSettings(train=str(file))).train()
    assert [example["answer"] for example in examples] == [r"\frac{1}{2}", "27", "27.0"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"problem": "p"}, "answer is missing; the row has problem"),
        ({"problem": "p", "answer": ["5"]}, "answer=['5']: must be text"),
        ({"problem": "p", "answer": r"\frac{1"}, "braces do not match"),
        ({"problem": "p", "answer": " "}, "answer is empty"),
        ({"problem": "p", "solution": "no box"}, "solution has no \\boxed{} answer"),
        ({"answer": "5"}, "problem or question is missing"),
    ],
)
def test_a_row_that_is_no_problem_is_named(row: dict[str, Any], says: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"problem": "p", "answer": "5"}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(UnmaskError) as error:
        Math(MathSettings(train=str(file))).train()
    assert str(error.value).startswith(f"{file}: row 2: ") and says in str(error.value)


def test_a_gsm8k_answer_must_end_in_a_number() -> None:
    with pytest.raises(UnmaskError, match="must end in #### and a number"):
        Gsm8k().example({"answer": "#### many"})
