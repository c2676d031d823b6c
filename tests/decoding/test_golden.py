"""The authors' decoded tokens, reveal steps and probabilities, case by case (see tests/golden/README.md)."""

import pytest
import torch

from tests.golden_data import golden, golden_model
from unmask.decoding import Decoding, decode
from unmask.models import load_model

ABOUT = golden("decode/llada_official").about["cases"]

LEFT_OUT = {
    "probe.": "records an error that the reference raises",
    "cfg": "needs classifier-free guidance, which Unmask's decoding does not have yet",
}
CASES = sorted(name for name in ABOUT if not any(part in name for part in LEFT_OUT))


@pytest.mark.parametrize("case", CASES)
def test_decoding_is_the_authors(case: str) -> None:
    tensors, settings = golden("decode/llada_official").tensors, ABOUT[case]
    if settings["block_length"] == 1:
        decoding = Decoding(order="left_to_right", length=settings["gen_length"], temperature=0)
    else:
        decoding = Decoding(
            order="static",
            length=settings["gen_length"],
            steps=settings["steps"],
            block=settings["block_length"],
            temperature=0,
        )
    prompt_ids = tensors[f"{case}.prompt_ids"]
    prompt_mask = tensors.get(f"{case}.attention_mask", torch.ones_like(prompt_ids))
    model = load_model(golden_model(settings["model"]), dtype="float32")
    rollout = decode(model, prompt_ids, prompt_mask, decoding, generator=torch.Generator())
    response = tensors[f"{case}.output_ids"][:, prompt_ids.shape[1] :]
    assert torch.equal(rollout.response_ids, response)
    assert torch.equal(rollout.reveal_step, tensors[f"{case}.step_map"])
    torch.testing.assert_close(rollout.logprob.exp(), tensors[f"{case}.token_probs"], rtol=0, atol=2e-4)
    assert rollout.row_forwards == settings["forward_calls"] * settings["rows_per_forward"]


def test_every_kind_of_case_is_covered() -> None:
    assert len(CASES) >= 8
    assert all(any(kind in name for name in CASES) for kind in ("full_steps", "half_steps", "justgrpo_ar", "leftpad"))
