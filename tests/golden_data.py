"""Reading tests/golden: results of the authors' code, recorded as safetensors + JSON (see its README)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file
from torch import Tensor

GOLDEN = Path(os.environ.get("UNMASK_GOLDEN") or Path(__file__).parent / "golden")
"""`UNMASK_GOLDEN` names a folder recorded with another seed and other sizes."""


class Golden(NamedTuple):
    """One recorded case file."""

    tensors: dict[str, Tensor]
    """Name -> tensor."""
    about: dict[str, Any]
    """The JSON beside it: options, notes, sizes."""


def golden(name: str) -> Golden:
    """The recorded case `name`, such as `parity/llada_mha` or `loss/justgrpo`."""
    path = GOLDEN / f"{name}.safetensors"
    return Golden(load_file(path), json.loads(path.with_suffix(".json").read_text()))


def golden_model(name: str) -> Path:
    """Folder of a recorded model, such as `llada_mha` or `dream_gqa_old`."""
    return GOLDEN / "models" / name
