from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import unmask
from unmask.decoding import Decoding
from unmask.evaluation import Evaluation, Judged, ResponseFile, evaluate, sampling
from unmask.tasks import Sudoku


def test_the_shipped_base_is_where_the_readme_says() -> None:
    """pass@1 on all 1,024 held-out puzzles, left to right at temperature 1: between 0.30 and 0.40."""
    model, tokenizer = unmask.load("tiny")
    result = evaluate(model, tokenizer, Sudoku(), Decoding(length=16, batch_tokens=4096), examples=None, seed=0)
    assert len(result.rewards) == 1024
    assert 0.30 <= result.accuracy <= 0.40
    assert result.accuracy == sum(result.rewards) / 1024


def test_an_examples_draws_do_not_depend_on_how_many_are_evaluated() -> None:
    model, tokenizer = unmask.load("tiny")
    few, more = (evaluate(model, tokenizer, Sudoku(), Decoding(length=16), examples=count, seed=3) for count in (5, 20))
    assert few.responses == more.responses[:5]
    other = evaluate(model, tokenizer, Sudoku(), Decoding(length=16), examples=20, seed=4)
    assert other.responses != more.responses


def test_more_samples_add_to_what_one_gives() -> None:
    model, tokenizer = unmask.load("tiny")
    one, four = (
        evaluate(model, tokenizer, Sudoku(), Decoding(length=16), examples=8, seed=0, samples=samples)
        for samples in (1, 4)
    )
    assert four.responses[::4] == one.responses
    assert len(four.responses) == 32 and len(set(four.responses)) > 8
    assert four.solved == sum(four.is_right) == sum(four.rewards)


def test_results_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = unmask.load("tiny")
    told: list[Sequence[Judged]] = []
    whole = evaluate(model, tokenizer, Sudoku(), Decoding(length=16), examples=5, seed=0, samples=3)
    monkeypatch.setattr(sampling, "CHUNK_TOKENS", 4 * 34)
    pieces = evaluate(
        model, tokenizer, Sudoku(), Decoding(length=16), examples=5, seed=0, samples=3, listener=told.append
    )
    assert pieces.responses == whole.responses and pieces.rewards == whole.rewards
    assert [len(judged) for judged in told] == [4, 4, 4, 3]


def test_pass_at_k_is_the_mean_over_examples() -> None:
    rewards = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    result = Evaluation(
        ({}, {}), ("",) * 6, rewards, 1, 0, samples=3, is_right=tuple(reward == 1 for reward in rewards)
    )
    assert result.pass_at == pytest.approx({1: 1 / 6, 2: 1 / 3, 3: 1 / 2})  # (1/3 + 0) / 2, (2/3 + 0) / 2, (1 + 0) / 2
    assert result.accuracy == pytest.approx(result.pass_at[1])


def test_an_evaluation_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = unmask.load("tiny")
    path, decoding = tmp_path / "out.jsonl", Decoding(length=16)

    def run(examples: int, samples: int, file: ResponseFile | None) -> Evaluation:
        return evaluate(model, tokenizer, Sudoku(), decoding, examples=examples, seed=0, samples=samples, file=file)

    uninterrupted = run(6, 2, None)

    def interrupt(judged: Sequence[Judged]) -> None:
        if judged:
            raise KeyboardInterrupt

    monkeypatch.setattr(sampling, "CHUNK_TOKENS", 5 * 34)
    with pytest.raises(KeyboardInterrupt):
        evaluate(
            model,
            tokenizer,
            Sudoku(),
            decoding,
            examples=6,
            seed=0,
            samples=2,
            file=ResponseFile(path, {}),
            listener=interrupt,
        )
    assert len(path.read_text().splitlines()) == 5
    resumed = run(6, 2, ResponseFile(path, {}))
    assert (resumed.responses, resumed.is_right) == (uninterrupted.responses, uninterrupted.is_right)
    assert 0 < resumed.row_forwards < uninterrupted.row_forwards
    assert len(path.read_text().splitlines()) == 12, "nothing is decoded twice"

    monkeypatch.setattr(sampling, "sample", None)
    assert run(4, 1, ResponseFile(path, {})).responses == uninterrupted.responses[:8:2], "fewer are read, not decoded"


def test_the_shipped_model_is_small_and_in_the_package() -> None:
    model, tokenizer = unmask.load("tiny")
    assert 330_000 < sum(parameter.numel() for parameter in model.parameters()) < 370_000
    assert next(model.parameters()).dtype == torch.float32
    assert len(tokenizer) == model.vocab_size <= 24
    from unmask.models.loading import SHIPPED

    assert sum(file.stat().st_size for file in SHIPPED["tiny"].iterdir()) < 1_000_000
