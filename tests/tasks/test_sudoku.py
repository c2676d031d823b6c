import pytest

from tests.shared_files import data_file, reward_cases
from unmask.tasks import Sudoku, SudokuSettings
from unmask.tasks.sudoku import HELD_OUT_GRIDS, is_solution, solution_grids


def test_there_are_288_grids_and_48_are_held_out() -> None:
    grids = solution_grids()
    assert len(set(grids)) == 288
    task = Sudoku()
    train = {task.train()[index]["solution"] for index in range(3000)}
    held_out = {task.evaluation()[index]["solution"] for index in range(1024)}
    assert len(train) == 240 and len(held_out) == HELD_OUT_GRIDS == 48
    assert not train & held_out


def test_puzzles_keep_their_clues_and_blanks() -> None:
    data = Sudoku(SudokuSettings(min_blanks=9, max_blanks=10)).train()
    blanks = {data[index]["puzzle"].count("0") for index in range(200)}
    assert blanks == {9, 10}
    assert all(is_solution(data[index]["puzzle"], data[index]["solution"]) for index in range(200))


def test_nine_by_nine_puzzles_are_made_and_solved() -> None:
    task = Sudoku(SudokuSettings(size=9, min_blanks=35, max_blanks=40))
    examples = [task.train()[index] for index in range(5)] + [task.evaluation()[index] for index in range(5)]
    assert len({example["puzzle"] for example in examples}) == 10
    for example in examples:
        assert 35 <= example["puzzle"].count("0") <= 40
        assert example == task.example(example)
        assert task.reward(example, task.solution(example)) == 1
        rows = [example["solution"][start : start + 9] for start in range(0, 81, 9)]
        assert task.reward(example, "<answer>" + "\n".join(" ".join(row) for row in rows) + "</answer>") == 1
        # two rows of one band exchanged: columns and boxes stay right, clues do not
        assert task.reward(example, "".join([rows[1], rows[0], *rows[2:]])) == 0
        # and of two bands: without clues, boxes alone are wrong
        mixed = "".join([rows[0], rows[1], rows[3], rows[2], *rows[4:]])
        assert not is_solution("0" * 81, mixed) and is_solution("0" * 81, "".join([rows[1], rows[0], *rows[2:]]))
        assert len(task.show(example, example["solution"]).splitlines()) == 9
    assert "9x9" in task.instruction and "3x3" in task.instruction and task.response_length == 81


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"min_blanks": 13}, "min_blanks=13 is more than max_blanks=12"),
        ({"max_blanks": 17}, "a 4×4 grid has 16 cells"),
        ({"size": 9, "max_blanks": 29}, "min_blanks=30 is more than max_blanks=29"),
        ({"size": 5}, "size"),
    ],
)
def test_blanks_that_do_not_fit_are_refused(settings: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SudokuSettings(**settings)


def test_any_valid_completion_is_right() -> None:
    puzzle = {"puzzle": "0" * 16, "solution": solution_grids()[0]}
    assert all(Sudoku().reward(puzzle, grid) == 1 for grid in solution_grids())


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("3142243142131324", 1),
        ("<answer>3142243142131324</answer>", 1),
        ("thinking <answer>1111</answer> no: <answer>\n3142 2431\n4213 1324\n</answer>", 1),
        (r"so \boxed{3142243142131324}", 1),
        ("<answer>3142243142131324", 0),  # never closed
        ("<answer>1111</answer> \\boxed{3142243142131324}", 0),
        ("3102200002100320", 0),
        ("the answer is 3142243142131324", 0),
        ("1234341221434321", 0),  # solved, but overwrites clues
        ("3142243142131323", 0),
        ("314224314213132", 0),
        ("31422431421313244", 0),
        ("３142243142131324", 0),
        ("", 0),
        ("<answer></answer>", 0),
    ],
)
def test_verdicts(response: str, reward: float) -> None:
    assert Sudoku().reward({"puzzle": "3102200002100320"}, response) == reward


def test_public_puzzles_are_solved_by_their_solutions_only() -> None:
    file = data_file("sudoku4x4_test.csv")
    rows = [line.split(",") for line in file.read_text().split()[1:]]
    examples = Sudoku(SudokuSettings(evaluation=str(file))).evaluation()
    assert [(example["puzzle"], example["solution"]) for example in examples] == [tuple(row) for row in rows]
    task = Sudoku()
    for (puzzle, solution), (other, _) in zip(rows, rows[1:] + rows[:1], strict=True):
        assert task.reward({"puzzle": puzzle}, solution) == 1
        keeps_clues = all(clue in ("0", digit) for clue, digit in zip(other, solution, strict=True))
        assert task.reward({"puzzle": other}, solution) == float(keeps_clues)


def test_shared_reward_cases() -> None:
    for case in reward_cases("sudoku"):
        assert Sudoku().reward(Sudoku().example(case), case["response"]) == float(case["correct"]), case["why"]
