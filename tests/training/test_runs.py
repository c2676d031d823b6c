"""Whole runs: what is written, that they repeat and resume exactly, and what bad input is answered."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import unmask
from unmask.algorithms import ForkGRPO
from unmask.config import load_recipe
from unmask.errors import UnmaskError
from unmask.runs import resume, train
from unmask.tasks import Sudoku
from unmask.training.recipe import Recipe

KEYS = {
    "step", "reward/mean", "reward/std", "reward/solved", "tokens/generated", "tokens/generated_total",
    "tokens/replayed", "states/replayed", "groups/mixed", "loss", "grad_norm", "kl", "entropy", "policy/clip_fraction",
    "policy/mismatch", "time/rollout", "time/reward", "time/replay", "time/step",
}  # fmt: skip


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def untimed(file: Path) -> list[dict]:
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines(file)]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:06d}" / "model.safetensors")


@pytest.mark.parametrize("recipe", ["tiny/forkgrpo", "tiny/forkgrpo_fast", "tiny/justgrpo"])
def test_three_steps_and_three_resumed_are_six(recipe: str, small: Callable, tmp_path: Path) -> None:
    train(recipe, small("straight"))
    train(recipe, small("halved", "trainer.steps=3"))
    resume(tmp_path / "halved", ["trainer.steps=6"])
    straight, halved = tmp_path / "straight", tmp_path / "halved"
    assert untimed(straight / "metrics.jsonl") == untimed(halved / "metrics.jsonl")
    assert lines(straight / "evaluations.jsonl") == lines(halved / "evaluations.jsonl")
    one, other = weights(straight, 6), weights(halved, 6)
    assert all(torch.equal(one[name], other[name]) for name in one)
    before = weights(straight, 3)
    assert any(not torch.equal(one[name], before[name]) for name in one)


def test_stopping_between_evaluations_leaves_no_trace(small: Callable, tmp_path: Path) -> None:
    every = "evaluation.every=2"
    train("tiny/justgrpo", small("straight", every, "trainer.steps=4"))
    train("tiny/justgrpo", small("halved", every, "trainer.steps=3"))
    resume(tmp_path / "halved", ["trainer.steps=4"])
    for file in ("metrics.jsonl", "evaluations.jsonl"):
        assert untimed(tmp_path / "straight" / file) == untimed(tmp_path / "halved" / file)


def test_a_run_folder_holds_what_the_contract_says(small: Callable, tmp_path: Path) -> None:
    result = train("tiny/forkgrpo", small("run", "trainer.steps=2"))
    run = tmp_path / "run"
    assert result.run == run and not result.model.training
    metrics = lines(run / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [1, 2] and result.metrics == metrics
    assert all(line.keys() >= KEYS for line in metrics) and "eval/accuracy" in metrics[-1]
    assert [line["step"] for line in lines(run / "evaluations.jsonl")] == [0, 2]
    sample = lines(run / "samples" / "step-000001.jsonl")[0]
    assert sample.keys() >= {"prompt", "response", "reward", "advantage", "reveal_step"}
    assert len(sample["reveal_step"]) == 16
    # the written recipe is complete and runs again
    again = load_recipe(str(run / "recipe.yaml"), [f"run.dir={tmp_path / 'again'}"], Recipe)
    assert train(again).metrics[0]["reward/mean"] == metrics[0]["reward/mean"]
    model, tokenizer = unmask.load(str(run / "checkpoints" / "step-000002"))
    assert model.mask_token_id == tokenizer.mask_token_id


def test_numbers_logged_are_those_of_the_rollouts(small: Callable) -> None:
    (step,) = train("tiny/justgrpo", small("run", "trainer.steps=1", "evaluation.every=0")).metrics
    assert step["tokens/generated"] == step["tokens/generated_total"] == 3 * 4 * 16
    assert step["states/replayed"] == step["tokens/replayed"] == round(step["groups/mixed"] * 3) * 4 * 16
    assert 0 < step["states/distinct"] < step["states/replayed"]
    assert step["policy/mismatch"] < 1e-5
    assert step["policy/clip_fraction"] == 0 and step["kl"] == 0
    assert step["reward/std"] == pytest.approx((step["reward/mean"] * (1 - step["reward/mean"])) ** 0.5)


def test_fast_settings_log_what_they_save(small: Callable) -> None:
    more = ["trainer.steps=1", "evaluation.every=0", "algorithm.group_size=8", "decoding.batch_tokens=200"]
    (step,) = train("tiny/forkgrpo_fast", small("run", *more)).metrics
    assert step["rows/needed"] == step["tokens/generated"] < 3 * 8 * (16 + 15 + 11 + 7)
    assert 0 < step["rows/forwarded"] <= step["rows/needed"]
    assert step["rows/occupancy"] >= 0.98
    assert step["tokens/saved"] == 0
    (full,) = train("tiny/forkgrpo", small("full", *more)).metrics
    assert 0 < step["states/distinct"] < full["states/distinct"] / 4


def test_equal_rewards_skip_all_replay_and_leave_the_weights(
    small: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sudoku, "reward", lambda *_: 1.0)
    for step in train("tiny/forkgrpo", small("run", "trainer.steps=2", "trainer.checkpoint_every=1")).metrics:
        assert step["states/replayed"] == step["grad_norm"] == step["loss"] == 0
    one, two = weights(tmp_path / "run", 1), weights(tmp_path / "run", 2)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_several_updates_on_one_rollout_start_at_ratio_one_and_then_clip(small: Callable) -> None:
    more = [
        "trainer.steps=1",
        "evaluation.every=0",
        "trainer.updates_per_rollout=3",
        "optimizer.learning_rate=3e-2",
    ]
    (step,) = train("tiny/forkgrpo", small("run", *more)).metrics
    assert step["policy/mismatch"] < 1e-5  # measured at the first update
    assert 0 < step["policy/clip_fraction"] <= 1


def test_raising_a_responses_reward_raises_its_logprob(small: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewarding the digit 1 in the first cell makes it likelier within a few steps."""

    class FirstCell(Sudoku):
        def reward(self, example: object, response: str) -> float:
            return float(response[:1] == "1")

    monkeypatch.setattr("unmask.tasks.sudoku.Sudoku", FirstCell)
    more = ["trainer.steps=8", "evaluation.every=0", "optimizer.learning_rate=1e-3"]
    metrics = train("tiny/justgrpo", small("run", *more)).metrics
    rewards = [step["reward/mean"] for step in metrics]
    assert sum(rewards[-3:]) > sum(rewards[:3]) + 0.3


@pytest.mark.slow
@pytest.mark.parametrize("when", ["rollout", "replay"])
def test_ctrl_c_leaves_a_resumable_run(
    when: str, small: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = "collect" if when == "rollout" else "replay"
    original = getattr(ForkGRPO, method)
    calls = []

    def interrupted(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(ForkGRPO, method, interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"interrupted after step \d; continue with `unmask train --resume"):
        train("tiny/forkgrpo", small("run"))
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "rew')  # a line that a crash cut short
    monkeypatch.undo()
    done = 2 if when == "rollout" else 3  # a step whose rollouts are there is finished first
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == done
    assert (tmp_path / "run" / "checkpoints" / f"step-{done:06d}").is_dir()
    resume(tmp_path / "run")
    train("tiny/forkgrpo", small("straight"))
    assert untimed(tmp_path / "run" / "metrics.jsonl") == untimed(tmp_path / "straight" / "metrics.jsonl")


def test_a_folder_with_another_run_is_refused_and_untouched(small: Callable, tmp_path: Path) -> None:
    train("tiny/forkgrpo", small("run", "trainer.steps=1", "evaluation.every=0"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    with pytest.raises(UnmaskError, match="holds another run"):
        train("tiny/justgrpo", small("run"))
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}


def test_a_checkpoint_of_another_recipe_is_refused(small: Callable, tmp_path: Path) -> None:
    train("tiny/forkgrpo", small("run", "trainer.steps=1", "evaluation.every=0"))
    with pytest.raises(UnmaskError, match="written under another recipe"):
        resume(tmp_path / "run", ["optimizer.learning_rate=1"])
    with pytest.raises(UnmaskError, match="not a run"):
        resume(tmp_path)
    with pytest.raises(UnmaskError, match="a run stays in its folder"):
        resume(tmp_path / "run", ["run.dir=elsewhere"])
    before = (tmp_path / "run" / "recipe.yaml").read_text()
    (tmp_path / "run" / "checkpoints" / "step-000001" / "optimizer.pt").write_bytes(b"damaged")
    with pytest.raises(UnmaskError, match=r"optimizer\.pt: cannot be read"):
        resume(tmp_path / "run", ["trainer.steps=9"])
    (tmp_path / "run" / "checkpoints" / "step-000001" / "state.json").write_text("{}")
    with pytest.raises(UnmaskError, match=r"state\.json: cannot be read"):
        resume(tmp_path / "run", ["trainer.steps=9"])
    assert (tmp_path / "run" / "recipe.yaml").read_text() == before


def test_bad_input_writes_nothing(small: Callable, tmp_path: Path) -> None:
    for overrides in (["model.name=./nowhere"], ["algorithm.name=forkgrop"], ["decoding.length=6"]):
        with pytest.raises(UnmaskError):
            train("tiny/forkgrpo", small("run", *overrides))
    assert list(tmp_path.iterdir()) == []


def test_a_task_without_examples_writes_nothing(
    small: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sudoku, "evaluation", lambda _: [])
    with pytest.raises(UnmaskError, match=r"evaluation\(\) gives no examples; set evaluation\.every=0"):
        train("tiny/forkgrpo", small("run"))
    assert list(tmp_path.iterdir()) == []


def test_a_reward_out_of_range_names_the_prompt(small: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sudoku, "reward", lambda *_: 2.0)
    with pytest.raises(UnmaskError, match=r"reward 2\.0 for prompt '[0-4]{16}=' is outside \[0\.0, 1\.0\]"):
        train("tiny/forkgrpo", small("run", "evaluation.every=0"))


def test_a_task_that_raises_costs_that_response_its_reward_and_never_the_run(
    small: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reward(_: Sudoku, example: dict, response: str) -> float:
        if response.startswith("1"):
            raise ZeroDivisionError("a bug in the task")
        return 1.0

    monkeypatch.setattr(Sudoku, "reward", reward)
    result = train("tiny/forkgrpo", small("run", "trainer.steps=2"))
    assert len(result.metrics) == 2
    for metrics in result.metrics:
        assert metrics["reward/errors"] > 0
        assert metrics["reward/unsure"] > 0 and 0 < metrics["reward/mean"] < 1
    told = (tmp_path / "run" / "errors.txt").read_text()
    assert "step 1\nprompt: " in told and "ZeroDivisionError: a bug in the task" in told and "response: 1" in told
    assert result.evaluations[-1]["accuracy"] > 0

    def broken(*_: object) -> float:
        raise ZeroDivisionError

    monkeypatch.setattr(Sudoku, "reward", broken)
    assert train("tiny/forkgrpo", small("broken", "trainer.steps=1")).evaluations[-1]["accuracy"] == 0


def test_without_errors_there_is_no_file_of_them(small: Callable, tmp_path: Path) -> None:
    result = train("tiny/forkgrpo", small("run", "trainer.steps=1", "evaluation.every=0"))
    assert result.metrics[0]["reward/errors"] == 0 and not (tmp_path / "run" / "errors.txt").exists()


def test_python_api_of_the_readme(tmp_path: Path) -> None:
    model, tokenizer = unmask.load("tiny")
    ids = torch.tensor([tokenizer("3102200002100320=").input_ids])
    mask = torch.ones_like(ids)
    assert model(ids, mask).logits.shape == (1, 17, model.vocab_size)
    decoding = unmask.Decoding(order="dynamic", threshold=0.9, block=8, length=16)
    rollout = unmask.decode(model, ids, mask, decoding, generator=torch.Generator().manual_seed(0))
    assert rollout.response_ids.shape == (1, 16)
    again = unmask.decode(model, ids, mask, decoding, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.response_ids, rollout.response_ids)


def test_a_run_that_never_made_a_step_leaves_no_folder(
    small: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewards = iter([0.0] * 5)
    monkeypatch.setattr(Sudoku, "reward", lambda *_: next(rewards, 2.0))
    with pytest.raises(UnmaskError, match="is outside"):
        train("tiny/forkgrpo", small("run", "evaluation.every=0"))
    assert list(tmp_path.iterdir()) == []
