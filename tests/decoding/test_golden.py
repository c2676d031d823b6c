"""The authors' decoded tokens, reveal steps and probabilities, case by case (see tests/golden/README.md).

Where a reference has a defect, its choice is made explicit in the test's own input; only `probe.*`, which record an
error that the reference raises, are left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.golden_data import golden, golden_model
from unmask.decoding import Decoding, Rollout, sample
from unmask.decoding import draw as draw_module
from unmask.decoding import order as order_module
from unmask.models import Denoiser, load_model

FILES = ("llada_official", "llada_drift", "dream_official", "dream_official_leftpad", "dream_drift")
CASES = [
    (file, case)
    for file in FILES
    for case in sorted(golden(f"decode/{file}").about["cases"])
    if not case.startswith("probe.")
]
TOLERANCE = 2e-4

MEASURES = {
    "confidence": "probability",
    "maskgit_plus": "probability",
    "margin_confidence": "margin",
    "topk_margin": "margin",
    "neg_entropy": "negative_entropy",
    "entropy": "negative_entropy",
}


class Case:
    """One recorded decoding and how to repeat it."""

    def __init__(self, file: str, name: str) -> None:
        recorded = golden(f"decode/{file}")
        self.file, self.about = file, recorded.about["cases"][name]
        self.tensors = {
            key.removeprefix(f"{name}."): value
            for key, value in recorded.tensors.items()
            if key.startswith(f"{name}.") and "." not in key.removeprefix(f"{name}.").removeprefix("uniform.")
        }
        self.prompt_ids = self.tensors["prompt_ids"]
        self.prompt_mask = self.tensors.get("attention_mask", torch.ones_like(self.prompt_ids))
        self.response_ids = self.tensors["output_ids"][:, self.prompt_ids.shape[1] :]
        self.step_map = self.tensors["step_map"]

    @property
    def decoding(self) -> Decoding:
        about = self.about
        settings: dict[str, Any] = {"length": about["gen_length"], "temperature": 0}
        if about.get("block_length") == 1:
            return Decoding(**settings)
        if about.get("alg") == "origin":
            return Decoding(order="random", schedule="linear", steps=about["steps"], **settings)
        measure = about.get("target") or about.get("tar") or about.get("alg") or "confidence"
        settings |= {"measure": MEASURES[measure], "block": about.get("block_length")}
        settings |= {"guidance": about.get("cfg_scale", 0)}
        if about.get("use_cache"):
            settings |= {"cache": "prefix", "horizon": about["further_horizon"]}
        if self.file == "dream_drift":
            settings |= {"opening": "first_token"}
        if about.get("unmask_threshold") is not None:
            return Decoding(order="dynamic", threshold=about["unmask_threshold"], **settings)
        schedule = "linear" if self.file.startswith("dream") else "even"
        if self.file.startswith("dream_official"):
            # not in the recorded options: the default of transformers' generation settings, which Dream's inherit
            settings |= {"top_k": 50}
        return Decoding(order="static", steps=about["steps"], schedule=schedule, **settings)

    def decode(self, model: Denoiser, rows: list[int] | None = None) -> Rollout:
        row = torch.arange(len(self.prompt_ids)) if rows is None else torch.tensor(rows)
        with self.authors_choice(model):
            return sample(
                model, self.prompt_ids[row], self.prompt_mask[row], self.decoding, key=row, prompt=row, group=row
            )

    def authors_choice(self, model: Denoiser) -> Any:
        """What the reference does that Unmask does not."""
        if self.file == "llada_drift" and self.about["target"] == "neg_entropy":
            # its sign is wrong: the most uncertain position comes first
            measured = draw_module.measured
            return patch.object(draw_module, "measured", lambda *arguments: -measured(*arguments))
        if self.file == "dream_drift":
            return without_mask_and_later_ids(model)
        if self.about.get("alg") == "origin":
            return patch.object(order_module, "order_draw", self.recorded_draw)
        return nullcontext()

    def recorded_draw(self, key: Tensor, step: Tensor, position: Tensor) -> Tensor:
        """The reference's uniform numbers; keys are row numbers. Recorded for the masked positions of all rows."""
        draws = torch.ones(self.about["steps"], *self.step_map.shape)
        for index in range(self.about["steps"]):
            draws[index][self.step_map >= index] = self.tensors[f"uniform.{index}"].flatten()
        return draws[step.expand_as(position), key.expand_as(position), position]


@contextmanager
def without_mask_and_later_ids(model: Denoiser) -> Iterator[None]:
    """RLDF's Dream sampler gives the mask id and all ids after it no probability."""
    head = model.head

    def cut(hidden: Tensor) -> Tensor:
        logits = head(hidden)
        logits[..., model.mask_token_id :] = -torch.inf
        return logits

    with patch.object(model, "head", cut):
        yield


def dense(step: Tensor) -> Tensor:
    """Each row's steps renumbered 0, 1, ... without gaps."""
    return torch.stack([row.unique(return_inverse=True)[1] for row in step])


def steps_in_blocks(step: Tensor, block: int) -> Tensor:
    """(B, blocks) how many steps of each row revealed something in each block."""
    return torch.tensor([[len(part.unique()) for part in row.split(block)] for row in step])


@cache
def recorded_model(name: str) -> Denoiser:
    return load_model(golden_model(name), dtype="float32")


@cache
def decoded(file: str, name: str) -> tuple[Case, Rollout]:
    case = Case(file, name)
    return case, case.decode(recorded_model(case.about["model"]))


every_case = pytest.mark.parametrize(("file", "name"), CASES)


@every_case
def test_tokens_and_reveal_steps_are_the_authors(file: str, name: str) -> None:
    case, rollout = decoded(file, name)
    assert torch.equal(rollout.response_ids, case.response_ids)
    if case.decoding.order == "dynamic":
        # the authors count a batch's steps, which go on until its slowest row has filled the block
        assert torch.equal(rollout.reveal_step, dense(case.step_map))
    else:
        assert torch.equal(rollout.reveal_step, case.step_map)


@every_case
def test_probabilities_are_the_authors(file: str, name: str) -> None:
    case, rollout = decoded(file, name)
    if "token_probs" in case.tensors:
        expected = case.tensors["token_probs"]
        torch.testing.assert_close(rollout.logprob.exp().to(expected.dtype), expected, rtol=0, atol=TOLERANCE)
    else:
        # RLDF's Dream sampler reports zeros, and Dream's authors' class reports nothing where prompts are padded
        assert file == "dream_drift" or "leftpad" in name


@every_case
def test_forwards_are_the_authors_without_those_that_reveal_nothing(file: str, name: str) -> None:
    """Each row runs once for each of its steps that reveals something.

    The authors' batch takes as many passes as its slowest row, at least two a block in RLDF's LLaDA sampler, and one
    for each step of a schedule, whether it reveals something or not.
    """
    case, rollout = decoded(file, name)
    taken = steps_in_blocks(case.step_map, case.decoding.block_length)
    assert rollout.row_forwards == int(taken.sum()) * (2 if case.decoding.guidance else 1)
    if case.decoding.order == "dynamic":
        least = 2 if file == "llada_drift" else 1
        assert int(taken.max(0).values.clamp(min=least).sum()) == case.about["forward_calls"]
    elif file.startswith("llada"):
        assert (taken.sum(-1) == case.about["forward_calls"]).all()
    else:
        assert case.about["forward_calls"] == case.about["steps"] > int(case.step_map.max())


@pytest.mark.parametrize("name", [name for file, name in CASES if file == "llada_drift"])
def test_passes_run_as_few_tokens_as_the_authors(name: str) -> None:
    case, _ = decoded("llada_drift", name)
    total, block = case.tensors["output_ids"].shape[1], case.decoding.block_length
    taken = steps_in_blocks(case.step_map, block)
    ends = torch.arange(case.prompt_ids.shape[1], total, block) + block
    later = torch.full_like(ends, total)  # tokens of a block's passes after the first
    if case.decoding.cache != "none":
        horizon = total if case.decoding.horizon is None else case.decoding.horizon
        later = (ends + horizon).clamp(max=total) - (ends - block)
    slowest = taken.max(0).values.clamp(min=2)
    assert int((total + (slowest - 1) * later).sum()) == case.about["tokens_forwarded_per_row"]

    model, run = recorded_model(case.about["model"]), []
    embed = model.embed

    def counted(ids: Tensor) -> Tensor:
        run.append(ids.numel())
        return embed(ids)

    with patch.object(model, "embed", counted):
        case.decode(model, rows=[0])
    assert sum(run) == int((total + (taken[0] - 1) * later).sum())


def test_every_kind_of_case_is_covered() -> None:
    names = [name for _, name in CASES]
    kinds = ("full_steps", "half_steps", "justgrpo_ar", "leftpad", "cfg", "static", "dyn", "fh", "margin", "entropy")
    assert all(any(kind in name for name in names) for kind in (*kinds, "origin", "maskgit_plus"))
    assert {file for file, _ in CASES} == set(FILES)
