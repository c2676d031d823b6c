"""The denoiser: tokens in, logits out.

`denoiser.py` is what the rest of the code may assume of a model; `llada.py` and `dream.py` are the two
families, on the arithmetic in `layers.py`; `cache.py` keeps keys and values for those who accept old ones.
`loading.py` turns a hub name or folder into model and tokenizer and back, `tokenizing.py` text into tokens and
back, `lora.py` adds adapters; `conformance.py` checks a model when it is loaded. `scratch.py` builds a small
model from nothing. Not here: decoding, losses, distribution.

A new family is one file: a config and a `Denoiser` with its block, in the released names, and a line in
`loading.FAMILIES`.
"""

from unmask.models.cache import Cache, CacheRows
from unmask.models.conformance import check
from unmask.models.denoiser import Denoiser, DenoiserOutput
from unmask.models.dream import DreamConfig, DreamModel
from unmask.models.llada import LLaDAConfig, LLaDAModelLM
from unmask.models.loading import FAMILIES, load, load_model, save
from unmask.models.lora import LoraSettings, add_lora, without_adapter
from unmask.models.tokenizing import decode_response, load_tokenizer, render_prompt

__all__ = [
    "FAMILIES",
    "Cache",
    "CacheRows",
    "Denoiser",
    "DenoiserOutput",
    "DreamConfig",
    "DreamModel",
    "LLaDAConfig",
    "LLaDAModelLM",
    "LoraSettings",
    "add_lora",
    "check",
    "decode_response",
    "load",
    "load_model",
    "load_tokenizer",
    "render_prompt",
    "save",
    "without_adapter",
]
