"""What a person would have to ask first when something does not work: versions, devices, the sandbox."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch

from unmask.errors import UnmaskError
from unmask.tasks.sandbox import Sandbox

PACKAGES = ("unmask", "torch", "transformers", "peft", "tokenizers", "safetensors", "numpy", "pydantic", "datasets")


def findings() -> Iterator[tuple[str, str]]:
    """(name, what was found) of everything that a run may depend on; nothing missing is an error here."""
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs"
    yield "python", platform.python_version()
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    yield "GPU", _devices()
    yield "bubblewrap", _bubblewrap()
    yield "sandbox", _sandbox()


def _devices() -> str:
    if not torch.cuda.is_available():
        return "none that torch can use"
    names = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return ", ".join(f"{device.name} ({device.total_memory / 2**30:.0f} GiB)" for device in names)


def _bubblewrap() -> str:
    if shutil.which("bwrap") is None:
        return "not installed"
    answer = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.removeprefix("bubblewrap").strip() or "does not run"


def _sandbox() -> str:
    try:
        with Sandbox():
            return "bubblewrap works: programs run confined"
    except UnmaskError as error:
        return str(error)
