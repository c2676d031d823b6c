"""A comparison: equal budgets, honest numbers, runs that are those of training alone, and nothing lost on the way."""

import csv
import json
import re
import shutil
import signal
import statistics
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from pytest import CaptureFixture, MonkeyPatch, TempPathFactory

import unmask
from unmask import cli, runs
from unmask.algorithms import ForkGRPO, JustGRPO
from unmask.comparison import Comparison
from unmask.comparison.curves import Point, mean_curve
from unmask.errors import UnmaskError

RECIPES = ["tiny/forkgrpo", "tiny/justgrpo"]
SMALL = [
    "algorithm.group_size=2",
    "trainer.prompts_per_step=2",
    "trainer.steps=2",
    "trainer.checkpoint_every=1",
    "evaluation.every=2",
    "evaluation.examples=4",
]


def lines(file: Path) -> list[dict]:
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def at_equal_tokens(tmp_path_factory: TempPathFactory) -> Comparison:
    """JustGRPO generates 2 · 2 · 16 = 64 tokens a step, so 3 steps reach 150; ForkGRPO ends earlier."""
    output = tmp_path_factory.mktemp("equal") / "comparison"
    return unmask.compare(RECIPES, seeds=2, tokens=150, output=output, overrides=SMALL)


def test_a_run_ends_with_the_first_step_that_reaches_the_tokens(at_equal_tokens: Comparison) -> None:
    for run in at_equal_tokens.runs:
        totals = [line["tokens/generated_total"] for line in lines(run.folder / "metrics.jsonl")]
        assert run.tokens == totals[-1] >= 150 and all(total < 150 for total in totals[:-1])
        assert run.steps == len(totals)
    assert [run.steps for run in at_equal_tokens.runs if run.recipe == "tiny/justgrpo"] == [3, 3]


def test_every_run_is_evaluated_before_on_its_way_and_at_its_end(at_equal_tokens: Comparison) -> None:
    run = at_equal_tokens.runs[-1]
    assert [point.step for point in run.curve] == [0, 2, 3]
    assert [line["step"] for line in lines(run.folder / "evaluations.jsonl")] == [0, 2, 3]
    assert lines(run.folder / "metrics.jsonl")[-1]["eval/accuracy"] == run.final_accuracy


@pytest.mark.parametrize("number", [0, 3])
def test_a_run_is_what_training_alone_gives(number: int, at_equal_tokens: Comparison, tmp_path: Path) -> None:
    run = at_equal_tokens.runs[number]
    again = str(run.folder / "recipe.yaml")  # its trainer.steps are those that the budget lasted
    for recipe, more in [(again, []), (run.recipe, [*SMALL, f"seed={run.seed}", f"trainer.steps={run.steps}"])]:
        alone = runs.train(recipe, [*more, f"run.dir={tmp_path / recipe.replace('/', '-')}"]).run
        for file in ("metrics.jsonl", "evaluations.jsonl"):
            assert lines(alone / file) == lines(run.folder / file)


def test_the_page_shows_mean_and_spread_in_the_order_given(at_equal_tokens: Comparison) -> None:
    page = (at_equal_tokens.folder / "comparison.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| tiny/")]
    assert [row[0] for row in rows] == RECIPES
    for row in rows:
        done = at_equal_tokens.finished(row[0])
        final = [run.final_accuracy for run in done]
        assert row[1] == f"{statistics.mean(final):.3f} ± {statistics.stdev(final):.3f}"
        assert row[3] == f"{statistics.mean(run.tokens for run in done):,.0f}"
        assert float(row[4]) == pytest.approx(statistics.mean(run.seconds for run in done), abs=0.051)
    assert "it has generated 150 tokens" in page and "4 evaluation examples" in page
    assert "--seeds 2 --tokens 150`" in page


def test_json_and_csv_hold_every_number(at_equal_tokens: Comparison) -> None:
    content = json.loads((at_equal_tokens.folder / "comparison.json").read_text())
    assert content["tokens"] == 150 and content["minutes"] is None and content["overrides"] == SMALL
    assert [(run["recipe"], run["seed"]) for run in content["runs"]] == [(name, s) for name in RECIPES for s in (0, 1)]
    with (at_equal_tokens.folder / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    for entry, run in zip(content["runs"], at_equal_tokens.runs, strict=True):
        assert at_equal_tokens.folder / entry["folder"] == run.folder
        assert (entry["tokens"], entry["steps"], entry["seconds"]) == (run.tokens, run.steps, run.seconds)
        assert (entry["start_accuracy"], entry["final_accuracy"]) == (run.start_accuracy, run.final_accuracy)
        points = [row for row in rows if (row["recipe"], row["seed"]) == (run.recipe, str(run.seed))]
        assert [(int(p["step"]), int(p["tokens"]), float(p["accuracy"])) for p in points] == list(run.curve)


def test_the_curves_are_drawn_with_both_names(at_equal_tokens: Comparison) -> None:
    text = (at_equal_tokens.folder / "curves.svg").read_text()
    ElementTree.fromstring(text)
    assert all(f"<!-- {name} -->" in text for name in RECIPES)


def test_a_finished_comparison_is_read_and_takes_more_seeds(at_equal_tokens: Comparison, tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    shutil.copytree(at_equal_tokens.folder, folder)
    before = files(folder / "tiny-justgrpo")
    more = unmask.compare(RECIPES[1:], seeds=3, tokens=150, output=folder, overrides=SMALL)
    assert [run.curve for run in more.runs[:2]] == [run.curve for run in at_equal_tokens.runs[2:]]
    assert [run.seed for run in more.runs] == [0, 1, 2]
    after = files(folder / "tiny-justgrpo")
    assert all(after[path] == time for path, time in before.items() if path.name == "metrics.jsonl")


def test_minutes_are_those_of_training(tmp_path: Path) -> None:
    seconds = 0.3
    done = unmask.compare(RECIPES[1:], seeds=1, minutes=seconds / 60, output=tmp_path / "out", overrides=SMALL)
    (run,) = done.runs
    times = [json.loads(line)["time/step"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert sum(times[:-1]) < seconds <= sum(times) == run.seconds
    page = (tmp_path / "out" / "comparison.md").read_text()
    assert "trained for 0.005 minutes" in page and re.search(r"\| \d\.\d{3} ± — \|", page), "one seed has no spread"


def test_without_a_budget_the_recipes_own_steps_count_and_never_means_before_and_after(tmp_path: Path) -> None:
    done = unmask.compare(RECIPES, seeds=1, output=tmp_path / "out", overrides=[*SMALL, "evaluation.every=0"])
    assert [[point.step for point in run.curve] for run in done.runs] == [[0, 2], [0, 2]]


@pytest.mark.parametrize("lost", ["nothing", "checkpoints"])
def test_an_interrupted_comparison_goes_on_as_if_it_had_not_been(
    lost: str, at_equal_tokens: Comparison, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    original, calls = JustGRPO.collect, []

    def interrupted(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 5:  # seed 1, its second step
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(JustGRPO, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt, match="interrupted at tiny/justgrpo, seed 1; the same command continues"):
        unmask.compare(RECIPES[1:], seeds=2, tokens=150, output=tmp_path / "out", overrides=SMALL)
    monkeypatch.undo()
    run = tmp_path / "out" / "tiny-justgrpo" / "seed-1"
    assert len(lines(run / "metrics.jsonl")) == 1
    if lost == "checkpoints":
        shutil.rmtree(run / "checkpoints")
    done = unmask.compare(RECIPES[1:], seeds=2, tokens=150, output=tmp_path / "out", overrides=SMALL)
    for found, expected in zip(done.runs, at_equal_tokens.runs[2:], strict=True):
        for file in ("metrics.jsonl", "evaluations.jsonl"):
            assert lines(found.folder / file) == lines(expected.folder / file)


def test_a_last_step_that_was_interrupted_keeps_its_evaluation(
    at_equal_tokens: Comparison, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    original, calls = JustGRPO.replay, []

    def interrupted(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(JustGRPO, "replay", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unmask.compare(RECIPES[1:], seeds=1, tokens=150, output=tmp_path / "out", overrides=SMALL)
    monkeypatch.undo()
    (run,) = unmask.compare(RECIPES[1:], seeds=1, tokens=150, output=tmp_path / "out", overrides=SMALL).runs
    assert run.curve == at_equal_tokens.runs[2].curve


def test_resuming_by_hand_keeps_the_last_evaluation_too(at_equal_tokens: Comparison, tmp_path: Path) -> None:
    run = tmp_path / "seed-0"
    shutil.copytree(at_equal_tokens.runs[2].folder, run)
    before = (run / "evaluations.jsonl").read_text()
    assert runs.resume(run, is_over=lambda trainer: trainer.tokens_generated >= 150).evaluations[-1]["step"] == 3
    assert (run / "evaluations.jsonl").read_text() == before


@pytest.mark.parametrize("error", [RuntimeError("out of |memory|\nand more"), UnmaskError("out of |memory|")])
def test_a_recipe_that_fails_does_not_lose_the_others(
    error: Exception, tmp_path: Path, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(ForkGRPO, "collect", fail)
    output = tmp_path / "out"
    arguments = [*RECIPES, *SMALL, "--seeds", "2", "--tokens", "50", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["unmask", "compare", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "failed at seed 0" in shown and "tiny/justgrpo seed 1: accuracy" in shown
    page = (output / "comparison.md").read_text()
    assert re.search(r"\| tiny/forkgrpo \| failed at seed 0: .*out of \\\|memory\\\|.*\|", page)
    assert re.search(r"\| tiny/justgrpo \| \d\.\d{3} ± \d\.\d{3} \|", page)
    content = json.loads((output / "comparison.json").read_text())
    assert [run["final_accuracy"] is None for run in content["runs"]] == [True, False, False]
    reports = list(output.rglob("*-error.txt"))
    assert len(reports) == isinstance(error, RuntimeError), "a bug leaves its traceback"

    monkeypatch.undo()
    assert not unmask.compare(RECIPES, seeds=2, tokens=50, output=output, overrides=SMALL).failures
    assert not list(output.rglob("*-error.txt"))


def test_the_command_shows_the_table_and_where_everything_is(
    tmp_path: Path, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["unmask", "compare", "tiny/justgrpo", *SMALL, "--seeds", "1", "--tokens", "50"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    shown = " ".join(capsys.readouterr().out.split())
    assert "tiny/justgrpo seed 0: accuracy" in shown and "final accuracy" in shown and "± —" in shown
    assert "comparison in runs/comparison: comparison.md" in shown
    kept = {path.name for path in (tmp_path / "runs" / "comparison").iterdir()}
    assert kept == {"comparison.md", "comparison.json", "curves.csv", "curves.svg", "tiny-justgrpo"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument"),
        (["evaluation.every=1"], "name at least one recipe"),
        (["tiny/forkgrop"], "did you mean tiny/forkgrpo?"),
        (["tiny/forkgrpo", "tiny/forkgrpo"], "given twice"),
        (["tiny/forkgrpo", "other/tiny-forkgrpo.yaml"], "its runs would be called as those of tiny/forkgrpo"),
        (["tiny/sft"], "for `unmask sft`"),
        (["tiny/forkgrpo", "algorithm.segment_wieght=2"], "did you mean segment_weight?"),
        (["tiny/forkgrpo", "llada/justgrpo"], "recipe llada/justgrpo: model.name="),
        (["tiny/forkgrpo", "other/blanks.yaml"], "recipe other/blanks.yaml: task.min_blanks=4, but 8 in tiny/forkgrpo"),
        (["tiny/forkgrpo", "seed=3"], "use --seeds"),
        (["tiny/forkgrpo", "run.dir=x"], "use --seeds and --output"),
        (["tiny/forkgrpo", "--tokens", "9", "--minutes", "1"], "give tokens or minutes, not both"),
        (["tiny/forkgrpo", "--tokens", "0"], "tokens=0: use at least 1"),
        (["tiny/forkgrpo", "--minutes", "nan"], "minutes=nan: use more than 0"),
        (["tiny/forkgrpo", "--seeds", "0"], "seeds=0: use at least 1"),
        (["tiny/forkgrpo", "--output", "other"], "holds something else"),
        (["tiny/forkgrpo", "--output", "other/blanks.yaml"], "is a file"),
        (["tiny/forkgrpo", "--output", "/proc/x"], "cannot be written"),
        (["tiny/forkgrpo", "model.name=./nowhere"], "./nowhere: no such folder"),
        (["tiny/forkgrpo", "task={name: 'unmask.nothing:X'}"], "there is no module unmask.nothing"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    recipe = (Path(__file__).parents[1] / "recipes" / "tiny" / "justgrpo.yaml").read_text()
    (other / "tiny-forkgrpo.yaml").write_text(recipe)
    (other / "blanks.yaml").write_text(recipe.replace("min_blanks: 8", "min_blanks: 4"))
    before = files(tmp_path)
    monkeypatch.setattr(sys, "argv", ["unmask", "compare", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    output = capsys.readouterr()
    assert output.err.startswith("unmask: ") and output.err.count("\n") == 1 and says in output.err
    assert files(tmp_path) == before


def test_a_folder_made_otherwise_is_refused_and_untouched(at_equal_tokens: Comparison, tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    shutil.copytree(at_equal_tokens.folder, folder)
    before = files(folder)
    other = [*SMALL, "optimizer.learning_rate=1"]
    with pytest.raises(UnmaskError, match=r"seed-0: made with optimizer\.learning_rate=0\.00025, not 1\.0; name"):
        unmask.compare(RECIPES, seeds=2, tokens=150, output=folder, overrides=other)
    for limit, named in [({"tokens": 151}, "--tokens 151"), ({"minutes": 1}, "--minutes 1"), ({}, "the recipe's own")]:
        with pytest.raises(UnmaskError, match=rf"made with --tokens 150, not {named}"):
            unmask.compare(RECIPES, seeds=2, output=folder, overrides=SMALL, **limit)  # type: ignore[arg-type]
    assert files(folder) == before
    runs.resume(folder / "tiny-justgrpo" / "seed-0", ["trainer.steps=4"])
    with pytest.raises(UnmaskError, match="trained beyond --tokens 150, to step 4"):
        unmask.compare(RECIPES, seeds=2, tokens=150, output=folder, overrides=SMALL)
    (folder / "comparison.json").write_text("{}")
    with pytest.raises(UnmaskError, match=r"comparison\.json: cannot be read"):
        unmask.compare(RECIPES, seeds=2, tokens=150, output=folder, overrides=SMALL)


def test_a_mean_curve_pairs_shared_steps_and_last_evaluations() -> None:
    one = (Point(0, 0, 0.2), Point(2, 20, 0.4), Point(4, 40, 0.5))
    other = (Point(0, 0, 0.4), Point(2, 22, 0.6), Point(4, 44, 0.7), Point(5, 55, 0.9))
    means = mean_curve([one, other])
    assert [point.tokens for point in means] == [0, 21, 47.5]  # (40 + 55) / 2
    assert [point.accuracy for point in means] == pytest.approx([0.3, 0.5, 0.7])
    assert means[-1].deviation == pytest.approx(0.4 / 2**0.5)
    assert [point.deviation for point in mean_curve([one])] == [0, 0, 0]
