import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.tasks import Countdown, Gsm8k, Gym, Math, Sudoku, Task, Verdict
from unmask.tasks.responses import after_hashes, last_boxed, last_tagged


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{ \boxed{ 5 } }", "5"),
        (r"\boxed{\boxed{42}, 43}", "{42}, 43"),
        (r"\boxed{43\boxed{42}", "42"),
        (r"{\boxed{42}", "42"),
        (r"\boxed{42}}}", "42"),
        (r"\boxed{42} \boxed{", None),
        (r"\boxed{42}\boxed", None),
        (r"\boxed{\boxed{}}", ""),
    ],
)
def test_boxes_inside_each_other_and_broken_ones(text: str, answer: str | None) -> None:
    assert last_boxed(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> 1 </answer> no <answer>2</answer>", "2"),
        ("<answer>1</answer> no <answer>2", None),
        ("1</answer>", None),
        ("1", None),
    ],
)
def test_the_last_tag_counts_if_it_closes(text: str, answer: str | None) -> None:
    assert last_tagged(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#### 18", "18"),
        ("##### 18", "18"),
        ("####: 18", "18"),
        ("#### 17\n#### 18\nDone.", "18"),
        ("#### <<9*2=18>>18", "18"),
        ("#### 18</s>", "18"),
        ("#### 18<|endoftext|>", "18"),
        ("#### 18 #### ", ""),
        ("### 18", None),
    ],
)
def test_the_line_after_the_last_hashes_counts(text: str, answer: str | None) -> None:
    assert after_hashes(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{" * 20_000,
        r"\boxed{" * 20_000 + "}" * 20_000,
        "{" * 100_000,
        " " * 50_000,
        "<answer>" * 50_000,
        "#" * 100_000,
    ],
)
def test_a_response_of_any_length_is_searched_in_no_time(text: str) -> None:
    began = time.perf_counter()
    for find in (last_boxed, last_tagged, after_hashes):
        find(text)
    assert time.perf_counter() - began < 2


TASKS: list[tuple[Task, dict[str, object]]] = [
    (Math(), {"answer": r"\frac{1}{2}"}),
    (Gsm8k(), {"answer": "18"}),
    (Countdown(), {"numbers": [2, 3], "target": 6}),
    (Sudoku(), {"puzzle": "3102200002100320"}),
    (Gym(), {"answer": "18"}),
]
PIECES = r"\boxed{;\fbox;{;};\;####;<answer>;</answer>;18;2*3;=6;=;1/2;\frac{1}{2};\text{ or };,;$;(;);3142243142131324"
ANYTHING = st.lists(st.sampled_from([*PIECES.split(";"), *"é∞٣\n", " ", "\x00", "\ud800"]), max_size=12).map("".join)


@settings(max_examples=200, deadline=None)
@given(ANYTHING | st.text(max_size=60))
def test_any_response_gets_a_verdict_from_every_task(response: str) -> None:
    for task, example in TASKS:
        judgement = task.judge(example, response)
        assert judgement.verdict in Verdict
        assert judgement.reward == float(judgement.verdict is Verdict.RIGHT)
