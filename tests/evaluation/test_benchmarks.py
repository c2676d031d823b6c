import pytest

from unmask.errors import UnmaskError
from unmask.evaluation import BENCHMARKS
from unmask.evaluation.benchmarks import evaluation_task
from unmask.tasks import Code, Math


def test_the_papers_columns_are_there_in_their_order() -> None:
    assert [*BENCHMARKS] == ["math500", "gsm8k", "amc23", "humaneval", "mbpp"]
    assert all(settings.evaluation_split == "test" for settings in BENCHMARKS.values())


def test_a_benchmark_is_its_task_on_the_published_set() -> None:
    amc, humaneval = evaluation_task("amc23"), evaluation_task("humaneval")
    assert isinstance(amc, Math) and amc.settings.evaluation == "math-ai/amc23"
    assert isinstance(humaneval, Code) and humaneval.settings.evaluation == "openai/openai_humaneval"


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    with pytest.raises(UnmaskError, match=r"task humanevl: unknown; did you mean humaneval\?"):
        evaluation_task("humanevl")
