"""Fixtures shared by all tests: small models in float64, whose numbers can be compared to 1e-10."""

from collections.abc import Callable

import pytest
import torch

from unmask.models.llada import LLaDAModelLM
from unmask.models.scratch import ScratchSettings, build

torch.set_num_threads(1)  # tests run in two processes on two cores


@pytest.fixture(scope="session")
def make_model() -> Callable[..., LLaDAModelLM]:
    """Builds a fresh LLaDA with logits that differ clearly from uniform; `alphabet` + 2 special tokens make V."""

    def make(alphabet: str = "abcdef", seed: int = 0, dtype: torch.dtype = torch.float64) -> LLaDAModelLM:
        settings = ScratchSettings(alphabet=alphabet, width=16, layers=2, heads=2, mlp_width=24)
        model: LLaDAModelLM = build(settings, seed)[0]
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(10.0)
        return model.to(dtype).eval()  # type: ignore[arg-type]  # transformers wraps `to` without its types

    return make
