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


RIGHT = [
    (r"\frac{1}{2004!}", r"$\boxed{\frac{1}{2004!}}$"),
    ("42", r"The final answer is $\boxed{42}$."),
    ("42", r"\[\boxed{42}\]"),
    ("42", r"\boxed{ 42 }"),
    ("42", r"\boxed{42\,}"),
    ("42", r"\boxed{\text{42}}"),
    ("42", r"\boxed{$42$}"),
    ("42", r"\boxed{\$42}"),
    ("42", r"\boxed{42 \text{ units}^2}"),
    ("1000000", r"\boxed{1{,}000{,}000}"),
    ("1000000", r"\boxed{1\,000\,000}"),
    (r"\$1,250", r"\boxed{1250}"),
    ("x^2+3x+2=0", r"\boxed{2x^2+6x+4=0}"),
    (r"x \le 3 \text{ or } x \ge 5", r"\boxed{(-\infty,3]\cup[5,\infty)}"),
    ("-2 < x < 3", r"\boxed{(-2,3)}"),
    (r"[2,\infty)", r"\boxed{x \geqslant 2}"),
    (r"(-3,\infty)", r"\boxed{x > -3}"),
    (r"\frac{3}{4}", r"\boxed{75\%}"),
    (r"75\%", r"\boxed{75}"),
    ("75", r"\boxed{75 \text{ percent}}"),
    ("12", r"\boxed{12\ \text{inches}}"),
    ("12", r"\boxed{12\,\mathrm{cm^2}}"),
    (r"12\text{ cm}", r"\boxed{12\,\mathrm{cm}}"),
    (r"9\text{ hours}", r"\boxed{9 \text{ hr}}"),
    ("(2,3)", r"\boxed{(2, 3)}"),
    ("(2,3)", r"\boxed{\left(2,\,3\right)}"),
    (r"\left(\frac12,3\right)", r"\boxed{(0.5,3)}"),
    ("1331 and 1728", r"\boxed{1331, 1728}"),
    ("1331 and 1728", r"\boxed{1728 \text{ and } 1331}"),
    ("A", r"\boxed{\text{A}}"),
    (r"\text{(D)}", r"\boxed{D}"),
    ("D", r"\boxed{\textbf{(D) }12}"),
    (r"\text{(E)}", r"\boxed{\mathrm{(E)}}"),
    (r"1-\frac{1}{e}", r"\boxed{1-e^{-1}}"),
    (r"1-\frac{1}{\mathrm{e}}", r"\boxed{\frac{e-1}{e}}"),
    ("2^{99}", r"\boxed{2\cdot 2^{98}}"),
    ("2006!", r"\boxed{2006\cdot 2005!}"),
    ("52_8", r"\boxed{52_{8}}"),
    ("1010_2", r"\boxed{1010_{\text{two}}}"),
    ("AB_{16}", r"\boxed{AB_{16}}"),
    ("11B_{12}", r"\boxed{11\text{B}_{12}}"),
    ("18", r"\boxed{3 \cdot 6 = 18}"),
    ("18", r"\boxed{2 \times 9 = 18 \text{ apples}}"),
    ("18", r"\boxed{x = 3 \times 6 = 18}"),
    (r"-\frac{2}{3}", r"\boxed{\frac{2}{-3}}"),
    (r"-\frac23", r"\boxed{-2/3}"),
    (r"\left(3,\frac{\pi}{2}\right)", r"\boxed{(3,\pi/2)}"),
    ("0.75", r"\boxed{\frac34}"),
    ("5", r"\boxed{x=5}"),
    ("x=5", r"\boxed{5}"),
    ("y=3x", r"\boxed{3x}"),
    (r"\infty", r"\boxed{\infty}"),
    (r"-\infty", r"\boxed{-\infty}"),
    ("5", "Wait \\boxed{4}. Actually\n\n\\boxed{5}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}}"),
    (r"\sqrt{2}", r"\boxed{\sqrt2}"),
    (r"$\sqrt{2}$", r"\boxed{\sqrt{2}}"),
    (r"\boxed{7}", r"\boxed{7}"),
    (r"\(7\)", r"\boxed{7}"),
    ("7", r"\boxed{\(7\)}"),
    ("7", r"\boxed{\[7\]}"),
    (r"\{x \mid x > 2\}", r"\boxed{\{x \mid x > 2\}}"),
    (r"(2,\infty)", r"\boxed{\{x \mid x > 2\}}"),
    (r"\text{Monday}", r"\boxed{Monday}"),
    (r"11:30 \text{ a.m.}", r"\boxed{11:30\text{ AM}}"),
    ("3+4i", r"\boxed{4i+3}"),
    ("0", r"\boxed{0.0}"),
    ("10", r"\boxed{10.}"),
    ("10^6", r"\boxed{1{,}000{,}000}"),
    (r"\frac{5}{3}\pi", r"\boxed{\frac{5\pi}{3}}"),
    ("x^2 - 2x + 1", r"\boxed{(x-1)^2}"),
    ("f(x)=x^2", r"\boxed{x^2}"),
    ("2, -2", r"\boxed{x=2 \text{ or } x=-2}"),
    (r"\{2,-2\}", r"\boxed{\pm 2}"),
    (r"120^\circ", r"\boxed{120 \text{ degrees}}"),
    ("1:2", r"\boxed{1 : 2}"),
    (r"6\frac{2}{3}", r"\boxed{\frac{20}{3}}"),
    (r"2\frac12", r"\boxed{2.5}"),
    ("1,234,567", r"\boxed{1234567}"),
    (r"\{(1,2),(3,4)\}", r"\boxed{(3,4),(1,2)}"),
    ("(1,2), (3,4)", r"\boxed{\{(1,2),(3,4)\}}"),
    ("5", r"\boxed{5\text{ (five)}}"),
    ("8", r"\boxed{8 \text{ different ways}}"),
    ("100", r"\boxed{100 \text{ mph}}"),
    ("4:30", r"\boxed{4:30}"),
    (r"\frac{1}{6}", r"\boxed{\frac{1}{6} \approx 16.7\%}"),
    (r"\frac16", r"\boxed{P = \frac{1}{6}}"),
    (r"\frac16", r"\boxed{P(A) = \frac{6}{36} = \frac{1}{6}}"),
    ("x+2", r"\boxed{f^{-1}(x) = x+2}"),
    ("n^2", r"\boxed{n^2 \text{ for all } n}"),
    (r"-\frac{3}{2}", r"\boxed{m = -\frac{3}{2}}"),
    (r"\frac{\sqrt{3}}{2}", r"\boxed{\dfrac{\sqrt 3}{2}}"),
    (r"10\text{ inches}", r"\boxed{10''}"),
    (r"10\text{ feet}", r"\boxed{10'}"),
    ("1000", r"\boxed{10^3}"),
    (r"\pi", r"\boxed{\pi \text{ square units}}"),
    (r"2\pi", r"\boxed{2\pi \text{ cm}}"),
    (r"60^{\circ}", r"\boxed{m\angle ABC = 60^\circ}"),
    ("17", r"\boxed{a+b = 17}"),
    (r"\frac{1}{4}", r"\boxed{25\%}"),
    ("2,3,5", r"\boxed{2, 3, \text{and } 5}"),
    ("2,3", r"\boxed{\text{2 and 3}}"),
    ("2,3", r"\boxed{x_1=2, x_2=3}"),
    ("(-3, 5]", r"\boxed{(-3,5]}"),
    (r"(-1,0)\cup(0,1)", r"\boxed{(0,1)\cup(-1,0)}"),
    (r"\text{(A)}", r"\boxed{A)}"),
    (r"\text{(A)}", r"\boxed{\text{A. } 5}"),
    (r"\text{Yes}", r"\boxed{\text{yes}}"),
    ("1.", r"\boxed{1}"),
    ("5", r"\boxed{5 \, \text{km}^2}"),
    (r"\frac{a}{b}", r"\boxed{a/b}"),
    ("a^{-1}", r"\boxed{\frac1a}"),
    (r"\log 2", r"\boxed{\log(2)}"),
    (r"2\sin\theta", r"\boxed{2\sin(\theta)}"),
    (r"\sin^2 x", r"\boxed{(\sin x)^2}"),
    (r"\sin^2 x", r"\boxed{1-\cos^2 x}"),
    ("x^{2/3}", r"\boxed{\sqrt[3]{x^2}}"),
    (r"\frac{n(n+1)}{2}", r"\boxed{\binom{n+1}{2}}"),
    ("n!", r"\boxed{n \cdot (n-1)!}"),
    ("2^n", r"\boxed{2 \cdot 2^{n-1}}"),
    (r"\lfloor 3.7 \rfloor", r"\boxed{3}"),
    ("7", r"\boxed{\mathbf{7}}"),
    ("7", r"\boxed{\boldsymbol{7}}"),
    ("7", r"\boxed{\color{red}{7}}"),
    ("7", r"\boxed{{\rm 7}}"),
    ("7", r"\boxed{\displaystyle 7}"),
    ("-7", r"\boxed{(-7)}"),
    ("1,2", r"\boxed{(1), (2)}"),
    (r"\frac{3}{5}", r"\boxed{\frac{3}{5}.}"),
    (r"3\sqrt{2}", r"\boxed{\sqrt{18}}"),
    (r"\frac{1}{2}", r"\boxed{\sfrac12}"),
    ("1/2", r"\boxed{2^{-1}}"),
    ("x = 2, y = 3", r"\boxed{(2,3)}"),
    ("x=2,y=3", r"\boxed{y=3, x=2}"),
    (r"72\pi", r"\boxed{V=72\pi\text{ in}^3}"),
    (r"\$5", r"\boxed{5\text{ dollars}}"),
    (r"\$5.50", r"\boxed{\$5.5}"),
    ("45", r"\boxed{45 \text{ min}}"),
    (r"6\text{ cm}", r"\boxed{6\text{cm}}"),
    (r"20 \text{ sq units}", r"\boxed{20}"),
    (r"-80\leq g(x)\leq 82", r"\boxed{-80 \le y \le 82}"),
    ("x^2+y^2=4", r"\boxed{x^2 + y^2 = 2^2}"),
    ("(x-1)^2+(y+2)^2=9", r"\boxed{x^2-2x+y^2+4y-4=0}"),
    (r"\frac{x^2}{4}+\frac{y^2}{9}=1", r"\boxed{9x^2+4y^2=36}"),
    ("3x+4y-5=0", r"\boxed{y=-\frac34x+\frac54}"),
    ("5! = 120", r"\boxed{120}"),
    (r"10,\!080", r"\boxed{10080}"),
]
"""(the data set's answer, a right response)"""

WRONG = [
    ("5", r"\boxed{4}"),
    ("5", r"\boxed{5} no \boxed{4}"),
    ("5", r"\boxed{5} no \boxed{}"),
    (r"12\text{ cm}", r"\boxed{12\text{ mm}}"),
    (r"\frac{1}{2004!}", r"\boxed{\frac{1}{2005!}}"),
    ("2^{99}", r"\boxed{2^{100}}"),
    ("52_8", r"\boxed{52_9}"),
    ("[2,5)", r"\boxed{(2,5)}"),
    ("[2,5)", r"\boxed{(2,5]}"),
    ("(1,2)", r"\boxed{[1,2]}"),
    (r"\{1,2\}", r"\boxed{(1,2)}"),
    ("1331 and 1728", r"\boxed{1331}"),
    ("1331 and 1728", r"\boxed{1331, 1729}"),
    ("A", r"\boxed{B}"),
    ("1080", r"\boxed{1,08}"),
    ("1080", r"\boxed{1}"),
    (r"1-\frac1e", r"\boxed{1+\frac1e}"),
    ("18", r"\boxed{3\times 6=17}"),
    (r"-\frac23", r"\boxed{\frac23}"),
    (r"x\ge 2", r"\boxed{(2,\infty)}"),
    ("x>2", r"\boxed{[2,\infty)}"),
    ("5", "5"),
    ("5", "$5$"),
    ("5", r"\boxed5\boxed{6}"),
    ("10000", r"\boxed{10{,}00}"),
    ("10000", r"\boxed{10,00}"),
    ("0.75", r"\boxed{0.7500001}"),
    ("50", r"\boxed{50.000001\%}"),
    (r"(3,\frac{\pi}{2})", r"\boxed{(\frac{\pi}{2},3)}"),
    (r"\sqrt{2}", r"\boxed{1.41}"),
    (r"\sqrt 2", r"\boxed{\sqrt 3}"),
    ("5", r"\boxed{5 \text{ or } 6}"),
    (r"\frac{1}{2}", r"\boxed{\frac{1}{2} \text{ or } \frac{1}{3}}"),
    ("7", r"\boxed{7, 8, 9}"),
    ("42", r"\boxed{40+1}"),
    ("12", r"\boxed{12x}"),
    ("x=5", r"\boxed{x=-5}"),
    ("y=3x", r"\boxed{x=3y}"),
    ("3", r"\boxed{\sqrt{3}}"),
    ("2", r"\boxed{\log 2}"),
    (r"10\text{ inches}", r"\boxed{10'}"),
    ("x = 2, y = 3", r"\boxed{x=3,y=2}"),
    ("(x-1)^2+(y+2)^2=9", r"\boxed{x^2-2x+y^2+4y-5=0}"),
    ("8", r"\boxed{8 \text{ or } 9}"),
    ("2,3", r"\boxed{2,3,\ldots}"),
    (r"\sin^2 x", r"\boxed{\cos^2 x}"),
    ("n!", r"\boxed{(n-1)!}"),
    ("17", r"\boxed{a+b=18}"),
    ("(-3,5]", r"\boxed{(-3,5)}"),
    (r"\text{(A)}", r"\boxed{\text{(A) or (B)}}"),
    (r"\text{(A)}", r"\boxed{A, B}"),
    ("A", r"\boxed{A, B, C, D}"),
    ("A", r"\boxed{\text{A. or B.}}"),
    ("5", r"\boxed{1 \approx 5}"),
    ("5", r"\boxed{4<5}"),
    ("5", r"\boxed{x \neq 5}"),
    ("5", r"\boxed{5?6}"),
]
"""(the data set's answer, a response that is not right)"""


@pytest.mark.parametrize(("gold", "response"), RIGHT)
def test_right_responses(gold: str, response: str) -> None:
    assert Math().judge(Math().example({"answer": gold}), response) == (1.0, Verdict.RIGHT)


@pytest.mark.parametrize(("gold", "response"), WRONG)
def test_responses_that_are_not_right(gold: str, response: str) -> None:
    assert Math().reward(Math().example({"answer": gold}), response) == 0


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
        ("#### **1080**", True),
        ("#### The answer is 1080", True),
        ("#### Answer: $1,080.00", True),
        ("#### 540*2 = 1080</s>", True),
        ("#### £1080", True),
        ("#### 1080 or 1081", False),
        ("#### 1080\n#### 1081", False),
        ("#### 1080 is not the answer", False),
        ("#### more than 1080", False),
        ("#### 1 to 1080", False),
        ("#### 10,80", False),
        ("#### 080", False),
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
        ({"problem": "p", "answer": r"\frac{1"}, "its brackets do not match"),
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
