"""RLDF's replay: the engine against the structure of its published code, on the same states, in one process each.

The published structure takes one step index after the other: the j-th state of every response in one batch, logits of
the whole vocabulary at every position, prompt included, and one backward. The engine packs states freely, applies the
head to masked positions alone and in chunks, and runs it backwards only for tokens that clipping kept. Vocabulary
32,768, width 256, 4 layers. Ratios above 1 mean that the engine is better.

    rldf        time                     target ≥ 2
    memory      peak above the model     target ≥ 4
    gradient    largest difference of the gradients over the largest gradient, ≤ 1e-4
    utility     kept tokens over response tokens
"""

import argparse
import multiprocessing
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import medians, report
from torch import Tensor

from unmask.algorithms import RLDF, Experience, Plan, RLDFSettings
from unmask.algorithms.rldf import CleanStateObjective
from unmask.decoding import Decoding, sample
from unmask.models import Denoiser
from unmask.models.llada import LLaDAConfig, LLaDAModelLM
from unmask.objectives import ObjectiveSettings
from unmask.randomness import derive
from unmask.replay import Replay

PROMPTS, SIZE, PROMPT_LENGTH, LENGTH, STEPS = 8, 4, 16, 48, 8
VOCABULARY = 32_768
SHARPNESS = 40.0
SETTINGS = RLDFSettings(group_size=SIZE, steps=STEPS, threshold=0.2)


def make_model() -> Denoiser:
    """Random weights, sharpened until tokens are about as probable as in a trained model."""
    config = LLaDAConfig(
        d_model=256,
        n_layers=4,
        n_heads=8,
        n_kv_heads=8,
        mlp_hidden_size=704,
        vocab_size=VOCABULARY,
        embedding_size=VOCABULARY,
        mask_token_id=VOCABULARY - 1,
        eos_token_id=VOCABULARY - 2,
        pad_token_id=VOCABULARY - 2,
        max_sequence_length=256,
    )
    torch.manual_seed(0)
    model = LLaDAModelLM(config).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(SHARPNESS)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def rollouts(model: Denoiser) -> Experience:
    """Groups with varied rewards, decoded dynamically."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(VOCABULARY - 2, (PROMPTS, PROMPT_LENGTH), generator=generator)
    prompt = torch.arange(PROMPTS).repeat_interleave(SIZE)
    key = derive(prompt, torch.arange(len(prompt)))
    decoding = Decoding(order="dynamic", length=LENGTH, block=32, threshold=0.9, temperature=1.0, batch_tokens=2048)
    rollout = sample(model, ids[prompt], torch.ones_like(ids)[prompt], decoding, key, prompt=prompt, group=prompt)
    reward = (torch.arange(len(prompt)) % 2).float().to(rollout.logprob)
    advantage = 2 * reward - 1
    return Experience(rollout, reward, advantage.unsqueeze(-1).expand(-1, LENGTH), advantage, key.to(reward.device))


class Alone:
    """The only worker."""

    def total(self, value: float) -> float:
        return value


def ours(model: Denoiser, experience: Experience, plan: Plan) -> None:
    replay = Replay(model, experience.rollout, temperature=1.0, batch_tokens=2048)
    replay.accumulate(plan.states, plan.objective)


def published(model: Denoiser, experience: Experience, plan: Plan) -> None:
    """The same states and loss, one step index at a time."""
    rollout, states = experience.rollout, plan.states
    objective = plan.objective
    assert isinstance(objective, CleanStateObjective)
    steps, weight = objective.rank[states.source], objective.weight
    for rank in range(STEPS):
        chosen = steps == rank
        rows, source = states.row[chosen], states.source[chosen]
        response, at = torch.unique(rows, return_inverse=True)
        if not len(response):
            continue
        masked = torch.zeros(len(response), LENGTH, dtype=torch.bool, device=rows.device)
        masked[at, states.position[chosen]] = True
        share = torch.zeros(len(response), dtype=weight.dtype, device=rows.device)
        share[at] = weight[source]
        tokens = rollout.response_ids[response]
        ids = torch.cat([rollout.prompt_ids[response], torch.where(masked, model.mask_token_id, tokens)], -1)
        logprobs = model(ids).logits.log_softmax(-1)  # (b, T, V)
        logprob = logprobs[:, PROMPT_LENGTH:].gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        kept = masked & (logprob.detach().exp() >= SETTINGS.threshold)
        per_state = (logprob * kept).sum(-1) / kept.sum(-1).clamp(min=1)
        (-(share * experience.credit[response] * per_state).sum()).backward()


def gradient_of(model: Denoiser, run: Callable[[], object]) -> Tensor:
    model.zero_grad(set_to_none=True)
    run()
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    model.zero_grad(set_to_none=True)
    return flat


def prepare() -> tuple[Denoiser, Experience, Plan]:
    model = make_model()
    experience = rollouts(model)
    (plan,) = RLDF(SETTINGS, ObjectiveSettings()).replay(experience, Alone(), 1)  # type: ignore[arg-type]
    return model, experience, plan


def peak_memory(name: str, result: Any) -> None:
    """Bytes that one pass needs at most beside the model, its gradients and the rollout; in a process of its own."""
    model, experience, plan = prepare()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    run = {"published": published, "ours": ours}[name]
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(model, experience, plan)
        result.put(torch.cuda.max_memory_allocated() - before)
        return
    before = current_memory()
    run(model, experience, plan)
    result.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)


def current_memory() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measured_memory(name: str) -> int:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=peak_memory, args=(name, queue))
    process.start()
    value = int(queue.get())
    process.join()
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    memory = {name: measured_memory(name) for name in ("published", "ours")}
    model, experience, plan = prepare()
    theirs, engine = (partial(run, model, experience, plan) for run in (published, ours))
    expected, found = gradient_of(model, theirs), gradient_of(model, engine)
    seconds = medians(arguments.repeats, published=theirs, ours=engine)
    scores, _ = Replay(model, experience.rollout, temperature=1.0, batch_tokens=2048).accumulate(
        plan.states, plan.objective
    )
    report(
        {
            "rldf": seconds["published"] / seconds["ours"],
            "memory": memory["published"] / memory["ours"],
            "gradient": ((found - expected).abs().max() / expected.abs().max()).item(),
            "utility": plan.objective.measure(scores)["rldf/token_utility"].double().mean().item(),
            "seconds_published": seconds["published"],
            "seconds_ours": seconds["ours"],
            "megabytes_published": memory["published"] / 2**20,
            "megabytes_ours": memory["ours"] / 2**20,
            "states": float(len(plan.states)),
            "tokens": float(plan.states.tokens),
        },
        arguments.json,
    )


if __name__ == "__main__":
    main()
