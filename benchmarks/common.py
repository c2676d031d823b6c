"""What the benchmarks share: interleaved medians, the JSON they write, a tiny model with any vocabulary."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from unmask.models import Denoiser, load
from unmask.models.llada import LLaDAConfig, LLaDAModelLM


def medians(repeats: int, **contestants: Callable[[], object]) -> dict[str, float]:
    """Median seconds of each contestant, run in turn `repeats` times after one warm-up each."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, run in contestants.items():
            _finish_device_work()
            began = time.perf_counter()
            run()
            _finish_device_work()
            if repeat:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _finish_device_work() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def tiny_model(vocabulary: int | None = None) -> Denoiser:
    """The shipped model; with another vocabulary, its blocks between a wider embedding and head."""
    model, _ = load("tiny", dtype="float32")
    if vocabulary is None:
        return model.eval()
    config = LLaDAConfig.from_dict({**model.config.to_dict(), "vocab_size": vocabulary, "embedding_size": vocabulary})
    torch.manual_seed(0)
    wide = LLaDAModelLM(config)
    own = wide.state_dict()
    wide.load_state_dict({k: v if v.shape == own[k].shape else own[k] for k, v in model.state_dict().items()})
    return wide.to(model.device).eval()  # type: ignore[arg-type]  # `to` is wrapped without its types


def report(result: dict[str, float], file: Path | None) -> None:
    """Print the ratios, and write them to `file` as one JSON object."""
    for name, value in result.items():
        print(f"{name:<28} {value:.4g}")
    if file is not None:
        file.write_text(json.dumps(result, indent=1) + "\n")
