"""Hub name or folder -> denoiser and tokenizer, and back to a folder in the same layout.

Weights are read by this file and not by transformers, which loads a checkpoint with missing tensors and only
warns. The classes are registered with transformers all the same, so its Auto classes find them.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from peft import PeftModel
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerBase
from transformers.utils import logging

from unmask.errors import UnmaskError, nearest
from unmask.models.conformance import check as check_conformance
from unmask.models.denoiser import Denoiser
from unmask.models.dream import DreamConfig, DreamModel
from unmask.models.files import one_line, read_json, replaced_folder, stored_tensors
from unmask.models.llada import LLaDAConfig, LLaDAModelLM
from unmask.models.lora import LoraSettings, add_lora, without_adapter
from unmask.models.tokenizing import load_tokenizer, save_tokenizer

__all__ = ["FAMILIES", "LoraSettings", "add_lora", "load", "load_model", "save", "without_adapter"]

FAMILIES: dict[str, type[Denoiser]] = {
    LLaDAConfig.model_type: LLaDAModelLM,
    DreamConfig.model_type: DreamModel,
}
"""`model_type` in config.json -> class."""

SHIPPED = {"tiny": Path(__file__).parent / "tiny"}
"""Models that come with the package."""

DTYPES = ("float32", "bfloat16", "float16", "float64")

MAX_SHARD_SIZE = "5GB"

for _class in FAMILIES.values():
    AutoConfig.register(_class.config_class.model_type, _class.config_class, exist_ok=True)
    AutoModel.register(_class.config_class, _class, exist_ok=True)
    AutoModelForCausalLM.register(_class.config_class, _class, exist_ok=True)


def load(
    name: str | Path, *, dtype: str = "auto", device: str | None = None, check: bool = True
) -> tuple[Denoiser, PreTrainedTokenizerBase]:
    """A denoiser, ready to run, and its tokenizer.

    Args:
        name: a local folder, a name on the hub, or `tiny`. A folder with an adapter loads its base model too.
        dtype: `float32`, `bfloat16`, `float16`, `float64`, or `auto`: bfloat16 on CUDA, float32 elsewhere.
        device: as torch names it; `None` = CUDA if there is any, else the CPU.
        check: run the conformance check (a few tokens through the model) before returning.

    Returns:
        The model in evaluation mode (a `PeftModel` with trainable adapter if `name` is an adapter), the
        tokenizer.

    Raises:
        UnmaskError: in one line, what is missing or does not fit, and where.
    """
    folder = find(name)
    if (folder / "adapter_config.json").is_file():
        # a PeftModel passes on everything that a denoiser is asked for
        model = cast(Denoiser, _load_adapter(folder, str(name), dtype=dtype, device=device))
    else:
        model = _load_model(folder, str(name), dtype=dtype, device=device)
    tokenizer = load_tokenizer(folder, str(name))
    if check:
        try:
            check_conformance(model, tokenizer)
        except UnmaskError as error:
            raise UnmaskError(f"{name}: {error}") from error
    return model, tokenizer


def load_model(name: str | Path, *, dtype: str = "auto", device: str | None = None) -> Denoiser:
    """The denoiser of `load` alone: no adapter, no tokenizer, no conformance check."""
    return _load_model(find(name), str(name), dtype=dtype, device=device)


def _load_model(folder: Path, name: str, *, dtype: str, device: str | None) -> Denoiser:
    is_downloaded = name not in SHIPPED and not Path(name).expanduser().is_dir()
    place = resolve_device(device)
    number = resolve_dtype(dtype, place)
    content = read_json(folder / "config.json", name)
    kind = str(content.get("model_type"))
    if kind not in FAMILIES:
        raise UnmaskError(f"{name}: model_type {kind!r} is not supported; supported: {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    try:
        config = family.config_class.from_dict(content)
        config.name_or_path = name if is_downloaded or name in SHIPPED else str(folder.resolve())
        with torch.device("meta"):
            model = family(config)
    except UnmaskError as error:
        raise UnmaskError(f"{name}: {error}") from error
    except Exception as error:  # a border: any nonsense in config.json
        raise UnmaskError(f"{name}: config.json does not describe a {kind} model: {one_line(error)}") from error
    if is_downloaded and hasattr(config, "auto_map"):
        # As transformers writes it: where the authors' code is, for a copy saved elsewhere.
        config.auto_map = {
            key: value if "--" in value else f"{name}--{value}" for key, value in config.auto_map.items()
        }
    return _fill(model, folder, name, number, place)


def find(name: str | Path) -> Path:
    """The folder of a model: shipped, local, or downloaded from the hub.

    Raises:
        UnmaskError: there is no such folder, shipped model or repository.
    """
    text = str(name)
    if text in SHIPPED:
        return SHIPPED[text]
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    is_hub_name = isinstance(name, str) and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) is not None
    if not is_hub_name or path.parent.is_dir():
        hint = nearest(text, SHIPPED)
        if "did you mean" not in hint:
            hint = "; give a model folder, a hub name (owner/model) or tiny"
        raise UnmaskError(f"{text}: no such folder{hint}")
    return _download(text)


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download

    files = ["*.json", "*.safetensors", "*.txt", "*.jinja", "tokenizer.model"]
    try:
        return Path(snapshot_download(name, allow_patterns=files))
    except Exception as error:  # a border: network, permissions, disk, a name that nobody has
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UnmaskError(f"{name}: no such folder, and the hub did not give it: {reason}") from error


def resolve_device(name: str | None) -> torch.device:
    """The torch device of a name; `None` = CUDA if there is any, else the CPU."""
    has_cuda = torch.cuda.is_available()
    try:
        device = torch.device(name or ("cuda" if has_cuda else "cpu"))
    except RuntimeError as error:
        raise UnmaskError(f"device {name!r} is unknown; give cpu, cuda or cuda:0") from error
    if device.type == "cuda" and not has_cuda:
        raise UnmaskError(f"device {name!r}: torch sees no CUDA device here; leave it out or give cpu")
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The torch dtype of a name; `auto` depends on the device."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in DTYPES:
        raise UnmaskError(f"dtype {name!r} is unknown{nearest(name, ['auto', *DTYPES])}")
    return getattr(torch, name)


def _fill(model: Denoiser, folder: Path, name: str, dtype: torch.dtype, device: torch.device) -> Denoiser:
    """Materialise a model built on the meta device and copy the checkpoint in, one tensor at a time."""
    expected = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    tied = set(model.all_tied_weights_keys)
    stored = stored_tensors(folder, name)
    for key, shape in expected.items():
        if key not in stored and key not in tied:
            raise UnmaskError(f"{name}: tensor {key} is missing from the weights")
        if key in stored and stored[key].shape != shape:
            where = stored[key].file.name
            raise UnmaskError(
                f"{name}: tensor {key} in {where} has shape {stored[key].shape}; config.json says {shape}"
            )
    for key, tensor in stored.items():
        if key not in expected:
            raise UnmaskError(f"{name}: tensor {key} in {tensor.file.name} belongs to no layer that config.json names")
    model.to(dtype=dtype)  # type: ignore[call-arg] # wrapped without its signature
    model.to_empty(device=device)
    model.tie_weights()
    parameters = model.state_dict()
    for file in sorted({tensor.file for tensor in stored.values()}):
        with safe_open(file, framework="pt", device=str(device)) as tensors, torch.no_grad():
            for key in tensors.keys():  # noqa: SIM118 (not a mapping)
                parameters[key].copy_(tensors.get_tensor(key))
    return model.eval()


def _load_adapter(folder: Path, name: str, *, dtype: str, device: str | None) -> PeftModel:
    base = read_json(folder / "adapter_config.json", name).get("base_model_name_or_path")
    if not base:
        raise UnmaskError(f"{name}: adapter_config.json: base_model_name_or_path is empty; name the base model there")
    try:
        model = load_model(base, dtype=dtype, device=device)
    except UnmaskError as error:
        raise UnmaskError(f"{name}: base model of the adapter: {error}") from error
    try:
        return PeftModel.from_pretrained(model, folder, is_trainable=True).eval()
    except Exception as error:  # a border: PEFT raises all kinds for files that do not fit the model
        raise UnmaskError(f"{name}: adapter does not fit {base}: {one_line(error)}") from error


def save(
    model: Denoiser | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    state_dict: dict[str, Tensor] | None = None,
) -> None:
    """Write a folder that `load`, the authors' code and PEFT read: all of it or, on an error, nothing.

    Args:
        model: a denoiser is saved in the hub's layout, a `PeftModel` as its adapter alone.
        tokenizer: saved next to it.
        folder: a new one, or an earlier save, which is replaced.
        state_dict: full weights to write instead of the model's own, when those are sharded over processes.
    """
    folder = Path(folder)
    state_dict = None if state_dict is None else dict(state_dict)  # transformers empties what it is given
    with replaced_folder(folder, ("config.json", "adapter_config.json")) as partial:
        if isinstance(model, PeftModel):
            # "auto" would ask the hub whether the base model's embedding was resized.
            model.save_pretrained(str(partial), state_dict=state_dict, save_embedding_layers=False)
        else:
            with _quietly():
                model.save_pretrained(partial, state_dict=state_dict, max_shard_size=MAX_SHARD_SIZE)
            _complete_for_older_transformers(partial, model)
        save_tokenizer(tokenizer, partial)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress bar of transformers, which would cut through ours."""
    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def _complete_for_older_transformers(folder: Path, model: Denoiser) -> None:
    """Write what the releases' own code looks for and current transformers no longer saves."""
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["architectures"] = [FAMILIES[model.config.model_type].__name__]
    content["torch_dtype"] = content.get("dtype")
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    source = Path(model.name_or_path or "")
    if "auto_map" in content and source.is_dir():
        for code in source.glob("*.py"):  # the authors' own, which `auto_map` names; never run here
            shutil.copy(code, folder)
    for file, fields in model.companion_files().items():
        (folder / file).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
