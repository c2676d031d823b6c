"""Checkpoints: everything a run needs to go on bit for bit, in a folder that `unmask eval` can load as a model.

`step-000100/` holds the model (or adapter) with its tokenizer, `optimizer.pt`, and `state.json` with the step, the
token count and a digest of the recipe. Random streams and the data position are functions of seed and step, so they
need no file. A checkpoint is written under a temporary name and renamed: it is there whole or not at all.
"""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch

from unmask.errors import UnmaskError
from unmask.models import Denoiser, save
from unmask.training.recipe import Recipe

# what may change between a checkpoint and its continuation without changing any number of the steps in between
_FREE = {"run": True, "evaluation": True, "trainer": {"steps", "checkpoint_every", "samples_per_step"}}


def recipe_digest(recipe: Recipe) -> str:
    """A fingerprint of everything in the recipe that decides what an update computes."""
    fixed = recipe.model_dump(mode="json", exclude=_FREE)  # type: ignore[arg-type]
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:16]


def checkpoint_folder(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:06d}"


def latest_checkpoint(run: Path) -> Path:
    """The newest complete checkpoint of a run.

    Raises:
        UnmaskError: there is none.
    """
    found = [path for path in (run / "checkpoints").glob("step-*") if re.fullmatch(r"step-\d+", path.name)]
    if not found:
        raise UnmaskError(f"{run}: no checkpoint to resume from; start the run again in another folder")
    return max(found, key=lambda path: int(path.name.removeprefix("step-")))


def save_checkpoint(
    run: Path,
    recipe: Recipe,
    model: Denoiser,
    tokenizer: Any,
    optimizer: torch.optim.Optimizer,
    *,
    step: int,
    tokens_generated: int,
) -> Path:
    """Write the state after `step` updates; an existing checkpoint of that step is left as it is."""
    folder = checkpoint_folder(run, step)
    if folder.exists():
        return folder
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    save(model, tokenizer, partial)
    torch.save(optimizer.state_dict(), partial / "optimizer.pt")
    state = {"step": step, "tokens_generated": tokens_generated, "recipe": recipe_digest(recipe)}
    (partial / "state.json").write_text(json.dumps(state))
    os.replace(partial, folder)
    return folder


def read_state(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """`state.json` of a checkpoint.

    Raises:
        UnmaskError: it is missing or damaged, or was written under another recipe.
    """
    try:
        state = json.loads((folder / "state.json").read_text())
        missing = {"step", "tokens_generated", "recipe"} - state.keys()
        if missing:
            raise KeyError(*missing)
    except (OSError, json.JSONDecodeError, AttributeError, KeyError) as error:
        raise UnmaskError(
            f"{folder / 'state.json'}: cannot be read; remove this checkpoint to resume from the one before"
        ) from error
    if state["recipe"] != recipe_digest(recipe):
        raise UnmaskError(
            f"{folder}: written under another recipe than {folder.parents[1] / 'recipe.yaml'}; "
            "only run, evaluation, trainer.steps, checkpoint_every and samples_per_step may change"
        )
    return state


def read_optimizer(folder: Path, optimizer: torch.optim.Optimizer) -> None:
    """Load the optimizer's state from a checkpoint, onto whatever device its parameters are on.

    Raises:
        UnmaskError: the file is missing or damaged.
    """
    file = folder / "optimizer.pt"
    try:
        optimizer.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    except Exception as error:  # a border: torch and pickle raise all kinds for a damaged file
        raise UnmaskError(f"{file}: cannot be read; remove this checkpoint to resume from the one before") from error
