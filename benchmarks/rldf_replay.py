"""RLDF's replay for `replay.py`: the engine against the structure of its published code, on the same states.

The published structure takes one step index after the other: the j-th state of every response in one batch, logits of
the whole vocabulary at every position, prompt included, and one backward. The engine packs states freely, applies the
head to masked positions alone and in chunks, and runs it backwards only for tokens that clipping kept. Vocabulary
32,768, width 256, 4 layers.
"""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch
from common import medians
from torch import Tensor

from unmask.algorithms import RLDF, Experience, Plan, RLDFSettings
from unmask.algorithms.rldf import CleanStateObjective
from unmask.decoding import Rollout
from unmask.models import Denoiser
from unmask.models.llada import LLaDAConfig, LLaDAModelLM
from unmask.objectives import ObjectiveSettings
from unmask.replay import Replay

PROMPTS, SIZE, PROMPT_LENGTH, LENGTH, STEPS = 12, 4, 16, 48, 4
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


@torch.no_grad()
def rollouts(model: Denoiser) -> Experience:
    """Groups with varied rewards: likely tokens, revealed three a step in random order."""
    generator = torch.Generator().manual_seed(1)
    rows = PROMPTS * SIZE
    prompt = torch.arange(PROMPTS).repeat_interleave(SIZE)
    ids = torch.randint(VOCABULARY - 2, (PROMPTS, PROMPT_LENGTH), generator=generator)[prompt]
    masked = torch.full((rows, LENGTH), model.mask_token_id)
    logits = model(torch.cat([ids, masked], -1).to(model.device)).logits[:, PROMPT_LENGTH:].cpu()
    tokens = (logits + torch.rand(logits.shape, generator=generator)).argmax(-1)
    order = torch.rand(rows, LENGTH, generator=generator).argsort(-1).argsort(-1)
    advantage = (torch.arange(rows) % 2).float() * 2 - 1
    zeros = torch.zeros(rows, LENGTH)
    tensors = {
        "prompt_ids": ids,
        "prompt_mask": torch.ones_like(ids, dtype=torch.bool),
        "response_ids": tokens,
        "trainable": torch.ones_like(tokens, dtype=torch.bool),
        "reveal_step": order // 3,
        "logprob": zeros,
        "entropy": zeros,
        "prompt": prompt,
        "group": prompt,
    }
    rollout = Rollout(**{name: value.to(model.device) for name, value in tensors.items()}, row_forwards=0)
    advantage, key = advantage.to(model.device), torch.arange(rows, device=model.device)
    return Experience(rollout, (advantage + 1) / 2, advantage.unsqueeze(-1).expand(-1, LENGTH), advantage, key)


class Alone:
    """The only worker."""

    def total(self, value: float) -> float:
        return value


def ours(model: Denoiser, experience: Experience, plan: Plan) -> None:
    replay = Replay(model, experience.rollout, temperature=1.0, batch_tokens=1024)
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


def peak_memory(name: str) -> int:
    """Bytes that one pass needs at most beside the model, its gradients and the rollout; in a process of its own."""
    model, experience, plan = prepare()
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter).fill_(0)  # written to, so that it is in memory
    run = {"published": published, "ours": ours}[name]
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(model, experience, plan)
        return torch.cuda.max_memory_allocated() - before
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    run(model, experience, plan)
    return resident("VmHWM") - before


def resident(what: str) -> int:
    """Bytes of this process in memory: now (`VmRSS`) or at most (`VmHWM`)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {what} in /proc/self/status")


def measured_memory(name: str) -> int:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(peak_memory, name).result()


def measurements(repeats: int) -> dict[str, float]:
    """Ratios of time and of peak memory, published over ours, and what they are made of."""
    memory = {name: measured_memory(name) for name in ("published", "ours")}
    model, experience, plan = prepare()
    theirs, engine = (partial(run, model, experience, plan) for run in (published, ours))
    expected, found = gradient_of(model, theirs), gradient_of(model, engine)
    seconds = medians(repeats, published=theirs, ours=engine)
    scores, _ = Replay(model, experience.rollout, temperature=1.0, batch_tokens=1024).accumulate(
        plan.states, plan.objective
    )
    return {
        "rldf": seconds["published"] / seconds["ours"],
        "memory": memory["published"] / memory["ours"],
        "gradient_rldf": ((found - expected).abs().max() / expected.abs().max()).item(),
        "utility_rldf": plan.objective.measure(scores)["rldf/token_utility"].double().mean().item(),
        "seconds_published_rldf": seconds["published"],
        "seconds_ours_rldf": seconds["ours"],
        "megabytes_published_rldf": memory["published"] / 2**20,
        "megabytes_ours_rldf": memory["ours"] / 2**20,
    }
