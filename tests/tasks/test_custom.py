import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import unmask
from unmask.errors import UnmaskError
from unmask.evaluation.score import score_file
from unmask.runs import build_task, train
from unmask.tasks import CustomTaskSettings, Example, Judgement, Verdict, judge_safely

PARITY = """
import unmask

class Parity(unmask.Task):
    response_length = 1
    def train(self): return [{"bits": format(i, "08b")} for i in range(200)]
    def evaluation(self): return [{"bits": format(i, "08b")} for i in range(200, 256)]
    def prompt(self, example): return example["bits"] + "="
    def reward(self, example, response): return float(response == str(example["bits"].count("1") % 2))

class NotATask: pass
"""

WHOLE = """
import unmask
class Whole(unmask.Task):
    def train(self): return []
    def evaluation(self): return []
    def prompt(self, example): return "?"
    def reward(self, example, response): return 0.0
"""


def test_a_class_in_the_users_folder_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_parity.py").write_text(PARITY)
    overrides = [
        "task={name: 'my_parity:Parity'}",
        "decoding.length=1",
        "trainer.steps=2",
        "evaluation.decoding.length=1",
    ]
    result = train("tiny/justgrpo", [*overrides, "trainer.prompts_per_step=4"])
    assert result.evaluations and (result.run / "recipe.yaml").read_text().count("my_parity:Parity") == 1
    with pytest.raises(UnmaskError, match=r"my_parity has no Paritee; did you mean Parity\?"):
        CustomTaskSettings(name="my_parity:Paritee").build()
    with pytest.raises(UnmaskError, match=r"NotATask is not a subclass of unmask\.Task"):
        CustomTaskSettings(name="my_parity:NotATask").build()
    with pytest.raises(UnmaskError, match="there is no module nowhere_at_all"):
        CustomTaskSettings(name="nowhere_at_all:Task").build()


class Fragile(unmask.Task):
    reward_min, reward_max = -1.0, 1.0

    def train(self) -> list[dict[str, str]]:
        return []

    evaluation = train

    def prompt(self, example: Example) -> str:
        return "?"

    def reward(self, example: Example, response: str) -> float:
        if response == "stop":
            raise UnmaskError("the sandbox is missing; install it")
        return 1 / int(response)


def test_errors_of_a_task_cost_only_the_responses_they_happen_in() -> None:
    judgements, errors = judge_safely(Fragile(), [{}] * 4, ["1", "0", "two", "-1"])
    assert judgements == [(1.0, Verdict.RIGHT), (-1.0, Verdict.UNSURE), (-1.0, Verdict.UNSURE), (-1.0, Verdict.WRONG)]
    assert {index: type(error) for index, error in errors.items()} == {1: ZeroDivisionError, 2: ValueError}


def test_a_task_that_says_it_cannot_judge_at_all_is_believed() -> None:
    with pytest.raises(UnmaskError, match="the sandbox is missing"):
        judge_safely(Fragile(), [{}] * 2, ["1", "stop"])


def test_a_broken_row_of_a_fragile_task_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"response": "1"}\n{"response": "0"}\n')
    scores = score_file(file, f"{__name__}:Fragile")
    assert scores.broken == {2: f"task {__name__}:Fragile failed on it: ZeroDivisionError: division by zero"}
    assert scores.accuracy == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import nothing_of_this_name", "imports nothing_of_this_name, which is missing"),
        ("1 / 0", "importing broken failed: division by zero"),
        ("def", "importing broken failed: invalid syntax"),
        ("import sys; sys.exit()", "importing broken failed: SystemExit"),
        (WHOLE + "    def __init__(self): raise KeyError('data')\n", r"Whole\(\) failed: 'data'"),
        (
            WHOLE.replace("return []", "yield {}"),
            r"train\(\) must give examples with a length and an index, like a list",
        ),
        (WHOLE.replace("return []", "return 1 / 0"), r"train\(\) failed: ZeroDivisionError: division by zero"),
    ],
)
def test_mistakes_in_a_users_file_are_one_line(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(UnmaskError, match=says) as refused:
        build_task(CustomTaskSettings(name="broken:Whole"), evaluation_every=0)
    assert "\n" not in str(refused.value)


def test_a_reward_out_of_range_is_refused_wherever_it_is_judged() -> None:
    class Generous(Fragile):
        def reward(self, example: Example, response: str) -> float:
            return float(response)

    for response in ("2", "nan"):
        with pytest.raises(
            UnmaskError, match=r"task Generous: reward (2\.0|nan) for prompt '\?' is outside \[-1\.0, 1\.0\]"
        ):
            judge_safely(Generous(), [{}], [response])


def test_a_task_that_leaves_the_program_or_forgets_a_response_costs_only_that() -> None:
    class Odd(Fragile):
        def judge_all(self, examples: Sequence[Example], responses: Sequence[str]) -> list[Judgement]:
            return super().judge_all(examples, responses)[:1]

        def reward(self, example: Example, response: str) -> float:
            return sys.exit() if response == "exit" else 1.0

    judgements, errors = judge_safely(Odd(), [{}] * 3, ["a", "exit", "b"])
    assert [judgement.reward for judgement in judgements] == [1.0, -1.0, 1.0]
    assert {index: type(error) for index, error in errors.items()} == {1: SystemExit}
