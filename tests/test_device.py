"""On a GPU: rollouts, replay and a run in the number formats that large models use."""

from pathlib import Path

import pytest
import torch

import unmask
from tests.helpers import make_prompts
from unmask.decoding import Decoding, sample
from unmask.objectives import ReinforceObjective
from unmask.replay import Replay, reveal_states
from unmask.runs import train

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.2)])
def test_replay_agrees_with_the_rollout_on_cuda(dtype: str, tolerance: float) -> None:
    model, _ = unmask.load("tiny", dtype=dtype, device="cuda")
    prompts = make_prompts(6, 9, model.vocab_size, pad=3)
    rows = torch.arange(6)
    rollout = sample(model, prompts.ids, prompts.mask, Decoding(length=16), prompts.key, prompt=rows, group=rows)
    assert rollout.response_ids.device.type == "cuda"
    states = reveal_states(rollout, rollout.trainable)
    replay = Replay(model, rollout, temperature=1.0, batch_tokens=500)
    scores, _ = replay.accumulate(states, ReinforceObjective(torch.ones(states.tokens, device="cuda")))
    assert (scores.logprob - scores.sampled).abs().max() < tolerance
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)


def test_a_run_on_cuda(tmp_path: Path) -> None:
    result = train("tiny/forkgrpo", ["trainer.steps=2", "evaluation.every=0", f"run.dir={tmp_path / 'run'}"])
    assert next(result.model.parameters()).is_cuda
    assert result.metrics[-1]["grad_norm"] > 0
