import pytest

from unmask.config import load_recipe
from unmask.errors import UnmaskError
from unmask.evaluation import BENCHMARKS, SETTINGS, setting
from unmask.evaluation.settings import INSTRUCTIONS, worded
from unmask.tasks import Code, Math
from unmask.training.recipe import Recipe


def test_forkgrpos_setting_is_its_appendix_c() -> None:
    (decoding,) = SETTINGS["forkgrpo"]
    assert (decoding.length, decoding.steps, decoding.block) == (256, 256, 32)
    assert (decoding.order, decoding.measure, decoding.temperature) == ("static", "probability", 0)


@pytest.mark.parametrize("name", ["rldf-dynamic", "rldf-static"])
def test_rldfs_settings_are_the_columns_of_its_tables(name: str) -> None:
    decodings = SETTINGS[name]
    assert [decoding.length for decoding in decodings] == [128, 256, 512]
    for decoding in decodings:
        assert decoding.order == name.removeprefix("rldf-") and decoding.block == 32
        if decoding.order == "dynamic":
            assert decoding.threshold == 0.9
        else:
            assert decoding.most_steps == decoding.length, "one token a step"


def test_an_option_picks_among_a_settings_columns_and_changes_nothing() -> None:
    assert setting("rldf-static", {}) == SETTINGS["rldf-static"]
    assert setting("rldf-static", {"length": 512, "block": 32}) == SETTINGS["rldf-static"][2:]


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("rldf-dynamc", {}, "--setting rldf-dynamc: unknown; did you mean rldf-dynamic?"),
        ("rldf-dynamic", {"length": 64}, "length=64: --setting rldf-dynamic has 128 or 256 or 512; leave one of them"),
        ("rldf-dynamic", {"steps": 64}, "steps=64: --setting rldf-dynamic has none"),
        ("rldf-static", {"length": 128, "steps": 256}, "steps=256: --setting rldf-static has 128"),
        ("forkgrpo", {"temperature": 0.5}, "temperature=0.5: --setting forkgrpo has 0.0"),
    ],
)
def test_an_option_that_says_something_else_is_a_mistake(name: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(UnmaskError) as error:
        setting(name, options)
    assert says in str(error.value)


def test_a_papers_words_are_put_around_a_benchmarks_problems() -> None:
    task = Math()
    problem = {"problem": "What is {x}?", "answer": "1"}
    assert task.message(problem) == f"{task.instruction}What is {{x}}?\n"
    assert worded(task, "math500", "forkgrpo").message(problem) == "What is {x}?"
    for name in ("rldf-static", "rldf-dynamic"):
        told = worded(task, "math500", name).message(problem)
        assert told == "You need to put your final answer in \\boxed{}. This is the problem:\nWhat is {x}?"
    assert worded(task, "math", "forkgrpo") is task and worded(task, "math500", "static") is task
    assert task.instruction == Math.instruction
    program = worded(Code(), "mbpp", "rldf-static").message({"text": "Add.", "test_list": ["assert add(1, 1) == 2"]})
    assert program.endswith(
        "assert add(1, 1) == 2\nPlace your code within a single Python code block ```python ```. "
        "Do not include more than one code block."
    )


def test_every_worded_benchmark_exists() -> None:
    assert {name for words in INSTRUCTIONS.values() for name in words} <= set(BENCHMARKS)
    assert {name.partition("-")[0] for name in SETTINGS} == set(INSTRUCTIONS)


@pytest.mark.parametrize(
    ("recipe", "setting", "benchmark"),
    [
        ("llada/forkgrpo", "forkgrpo", "gsm8k"),
        ("llada/forkgrpo_fast", "forkgrpo", "gsm8k"),
        ("llada/justgrpo", "forkgrpo", "gsm8k"),
        ("llada/rldf_math", "rldf", "math500"),
        ("dream/rldf_math", "rldf", "math500"),
        ("llada/tracerl", "rldf", "math500"),
        ("llada/rldf_code", "rldf", "mbpp"),
        ("dream/rldf_code", "rldf", "mbpp"),
    ],
)
def test_training_and_evaluation_say_the_same(recipe: str, setting: str, benchmark: str) -> None:
    task = load_recipe(recipe, (), Recipe).task.build()
    assert task.instruction == INSTRUCTIONS[setting][benchmark]
