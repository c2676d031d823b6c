import torch

import unmask
from unmask.decoding import Decoding
from unmask.evaluation import evaluate
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


def test_the_shipped_model_is_small_and_in_the_package() -> None:
    model, tokenizer = unmask.load("tiny")
    assert 330_000 < sum(parameter.numel() for parameter in model.parameters()) < 370_000
    assert next(model.parameters()).dtype == torch.float32
    assert len(tokenizer) == model.vocab_size <= 24
    from unmask.models.loading import SHIPPED

    assert sum(file.stat().st_size for file in SHIPPED["tiny"].iterdir()) < 1_000_000
