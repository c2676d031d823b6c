"""Replay: the engine against the structure of JustGRPO's published code, on the same rollouts, in one process.

The published structure walks through the response: for each group and each state index one forward of the group's
rows with logits at every position, one backward, whatever the advantages. Ratios above 1 mean that the engine is
faster.

    replay        tiny model, its own vocabulary          target ≥ 2
    replay_8192   the same blocks, vocabulary 8,192       target ≥ 5
    rldf          RLDF's states, vocabulary 32,768        target ≥ 2    (`rldf_replay.py`)
    memory        the same, peak beside the model         target ≥ 4
    gradient*     largest difference of the gradients over the largest gradient, ≤ 1e-5
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from common import medians, report, tiny_model
from rldf_replay import measurements
from torch import Tensor

from unmask.credit import group_advantage
from unmask.decoding import Decoding, Rollout, sample
from unmask.models import Denoiser, load
from unmask.objectives import ClippedObjective, ObjectiveSettings
from unmask.randomness import derive
from unmask.replay import Replay, reveal_states
from unmask.tasks import Sudoku
from unmask.tasks.rendering import prompt_batch, response_text

PROMPTS, SIZE, LENGTH = 8, 16, 16


def rollouts() -> tuple[Rollout, Tensor]:
    """Groups of the shipped model on sudoku, and their advantages (B,)."""
    model, tokenizer = load("tiny", dtype="float32")
    task = Sudoku()
    examples = [task.train()[index] for index in range(PROMPTS)]
    ids, mask = prompt_batch(task, examples, tokenizer)
    prompt = torch.arange(PROMPTS).repeat_interleave(SIZE)
    key = derive(prompt, torch.arange(SIZE).repeat(PROMPTS))
    rollout = sample(model, ids[prompt], mask[prompt], Decoding(length=LENGTH), key, prompt=prompt, group=prompt)
    texts = response_text(tokenizer, rollout.response_ids)
    reward = torch.tensor([task.reward(examples[p], text) for p, text in zip(prompt.tolist(), texts, strict=True)])
    return rollout, group_advantage(reward.to(rollout.group.device), rollout.group)


def published(model: Denoiser, rollout: Rollout, advantage: Tensor) -> None:
    """Gradients of −Σ A ρ, group by group, position by position."""
    for start in range(0, len(advantage), SIZE):
        rows = slice(start, start + SIZE)
        prompt, tokens = rollout.prompt_ids[rows], rollout.response_ids[rows]
        for position in range(LENGTH):
            visible = torch.arange(LENGTH, device=tokens.device) < position
            ids = torch.cat([prompt, torch.where(visible, tokens, model.mask_token_id)], -1)
            logits = model(ids).logits  # (M, T, V)
            logprobs = logits[:, prompt.shape[1] + position].log_softmax(-1)
            logprob = logprobs.gather(-1, tokens[:, position : position + 1]).squeeze(-1)
            ratio = (logprob - logprob.detach()).exp()
            (-(ratio * advantage[rows]).sum()).backward()


def ours(model: Denoiser, rollout: Rollout, advantage: Tensor) -> None:
    """The same gradients by the replay engine."""
    states = reveal_states(rollout, (advantage != 0).unsqueeze(-1).expand(-1, LENGTH))
    objective = ClippedObjective(states, ObjectiveSettings(), advantage[states.row].unsqueeze(-1))
    Replay(model, rollout, temperature=1.0, batch_tokens=4096).accumulate(states, objective)


def gradient_of(model: Denoiser, run: Callable[[], object]) -> Tensor:
    model.zero_grad(set_to_none=True)
    run()
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    model.zero_grad(set_to_none=True)
    return flat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rollout, advantage = rollouts()
    result = {"share_with_credit": (advantage != 0).float().mean().item()}
    for suffix, vocabulary in [("", None), ("_8192", 8192)]:
        model = tiny_model(vocabulary)
        theirs, engine = (partial(run, model, rollout, advantage) for run in (published, ours))
        expected, found = gradient_of(model, theirs), gradient_of(model, engine)
        seconds = medians(min(2, arguments.repeats) if suffix else arguments.repeats, published=theirs, ours=engine)
        model.zero_grad(set_to_none=True)
        result[f"replay{suffix}"] = seconds["published"] / seconds["ours"]
        result[f"gradient{suffix}"] = ((found - expected).abs().max() / expected.abs().max()).item()
        result[f"seconds_published{suffix}"] = seconds["published"]
        result[f"seconds_ours{suffix}"] = seconds["ours"]
    result |= measurements(min(2, arguments.repeats))
    report(result, arguments.json)


if __name__ == "__main__":
    main()
