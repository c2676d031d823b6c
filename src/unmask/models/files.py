"""Reading model folders and writing them whole: paths, JSON, safetensors headers, atomic replacement.

Knows files, not models.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from unmask.errors import UnmaskError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def one_line(error: BaseException) -> str:
    """The first non-empty line of an exception's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def read_json(path: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file; `name` is what an error calls the folder."""
    if not path.is_file():
        raise UnmaskError(f"{name}: {path.name} is missing")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnmaskError(f"{name}: {path.name} is not valid JSON: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise UnmaskError(f"{name}: {path.name} must hold a JSON object")
    return content


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor of a checkpoint is, known from the file's header alone."""

    file: Path
    """The safetensors file."""
    shape: tuple[int, ...]


def stored_tensors(folder: Path, name: str) -> dict[str, StoredTensor]:
    """All tensors of a checkpoint, single file or sharded, without reading their values."""
    if (folder / SINGLE_FILE).is_file():
        files = [SINGLE_FILE]
    elif (folder / INDEX_FILE).is_file():
        weight_map = read_json(folder / INDEX_FILE, name).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise UnmaskError(f"{name}: {INDEX_FILE} has no weight_map")
        files = sorted(set(map(str, weight_map.values())))
    else:
        raise UnmaskError(f"{name}: no weights: {SINGLE_FILE} (or {INDEX_FILE} with its shards) is missing")
    found: dict[str, StoredTensor] = {}
    for file in files:
        path = folder / file
        if not path.is_file():
            raise UnmaskError(f"{name}: {file} is missing, which {INDEX_FILE} names")
        try:
            with safe_open(path, framework="pt") as tensors:
                for key in tensors.keys():  # noqa: SIM118 (not a mapping)
                    found[key] = StoredTensor(path, tuple(tensors.get_slice(key).get_shape()))
        except SafetensorError as error:
            raise UnmaskError(f"{name}: {file} is not a readable safetensors file: {one_line(error)}") from error
    return found


@contextmanager
def replaced_folder(folder: Path, kind_files: tuple[str, ...]) -> Iterator[Path]:
    """A temporary sibling to write into, which becomes `folder` at the end; on an error nothing is left.

    Args:
        folder: may exist if it is empty or holds one of `kind_files`; then it is replaced as a whole.
        kind_files: names that show that a folder is what we are about to write.
    """
    if folder.exists() and not folder.is_dir():
        raise UnmaskError(f"{folder}: is a file; give a folder to save into")
    is_empty = not folder.exists() or not any(folder.iterdir())
    if not is_empty and not any((folder / file).is_file() for file in kind_files):
        raise UnmaskError(f"{folder}: holds other files; give a new folder to save into")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial, old = (folder.with_name(f".{folder.name}.{suffix}-{os.getpid()}") for suffix in ("partial", "old"))
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        if is_empty:
            partial.replace(folder)
        else:
            # A folder cannot be renamed onto a filled one, so for an instant there is none of this name.
            folder.replace(old)
            partial.replace(folder)
            shutil.rmtree(old)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
