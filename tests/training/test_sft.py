from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import unmask
from unmask.errors import UnmaskError
from unmask.models.scratch import character_tokenizer
from unmask.runs import supervise
from unmask.tasks import Sudoku
from unmask.training.sft import SftSettings, draw_masks, supervised_batch, supervised_loss


def test_half_the_masks_are_left_to_right_states_and_none_is_empty() -> None:
    masked = draw_masks(1000, 16, 0.5, torch.Generator().manual_seed(0))
    assert masked.any(-1).all()
    ordered = masked[:500]
    assert (ordered.int().diff(dim=-1) >= 0).all()  # once masked, masked to the end
    assert ordered.sum(-1).unique().tolist() == list(range(1, 17))
    # mean of U(0, 1) is 1/2; 500 rows of 16: standard error about 0.013
    assert abs(masked[500:].double().mean() - 0.5) < 0.06


def test_loss_is_the_mean_cross_entropy_of_masked_positions(make_model: Callable) -> None:
    model = make_model()
    generator = torch.Generator().manual_seed(0)
    prompt, response = (
        torch.randint(2, 8, (3, 4), generator=generator),
        torch.randint(2, 8, (3, 5), generator=generator),
    )
    masked = torch.rand(3, 5, generator=generator) < 0.6
    loss = supervised_loss(model, prompt, torch.ones(3, 4, dtype=torch.bool), response, masked)
    logits = model(torch.cat([prompt, torch.where(masked, model.mask_token_id, response)], -1)).logits[:, 4:]
    logprob = logits.log_softmax(-1).gather(-1, response.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(loss, -logprob[masked].mean())


def test_batches_are_a_function_of_seed_and_step() -> None:
    tokenizer = character_tokenizer("0123456789=")
    settings = SftSettings(length=18, batch=4)
    one, same, other = (supervised_batch(Sudoku(), tokenizer, settings, 0, step) for step in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one[2], other[2])
    assert (one[2][:, 16:] == tokenizer.eos_token_id).all()  # filled up with end tokens


def test_a_solution_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(UnmaskError, match=r"sft\.length=8: solution \d+ has 16 tokens"):
        supervised_batch(Sudoku(), character_tokenizer("01234="), SftSettings(length=8, batch=2), 0, 1)


def test_a_new_model_learns_and_its_folder_loads(tmp_path: Path) -> None:
    overrides = [
        "sft.steps=30",
        "sft.batch=32",
        "evaluation.every=0",
        "model.scratch.layers=1",
        f"run.dir={tmp_path}/run",
    ]
    result = supervise("tiny/sft", overrides)
    losses = [step["loss"] for step in result.metrics]
    assert len(losses) == 30 and sum(losses[-5:]) < 0.7 * sum(losses[:5])
    model, _ = unmask.load(str(tmp_path / "run" / "model"))
    for name, weight in result.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight)
    again = supervise("tiny/sft", [*overrides[:-1], f"run.dir={tmp_path}/again"])
    assert [step["loss"] for step in again.metrics] == losses
