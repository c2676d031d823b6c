"""Text to tokens and back: the tokenizers of both families, their chat templates, where a response ends.

Nothing here pads or batches, and no code from a checkpoint is run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen2Tokenizer

from unmask.errors import UnmaskError
from unmask.models.files import one_line, read_json

END_OF_TURN = ("<|eot_id|>", "<|im_end|>")
"""What closes a message in the families' chat templates, besides the tokenizer's own end token."""

TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")


def load_tokenizer(folder: Path, name: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer in a model folder.

    Dream's release names a class of its own, which is Qwen2's tokenizer with other special tokens; those are
    written in its tokenizer_config.json, so Qwen2's class reads it whole.

    Args:
        folder: holds tokenizer.json, or vocab.json and merges.txt.
        name: what to call the folder in an error.
    """
    name = name or str(folder)
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        raise UnmaskError(f"{name}: no tokenizer: tokenizer.json (or vocab.json and merges.txt) is missing")
    settings = folder / "tokenizer_config.json"
    released_class = read_json(settings, name).get("tokenizer_class") if settings.is_file() else None
    chosen = Qwen2Tokenizer if released_class == "DreamTokenizer" else AutoTokenizer
    try:
        # `trust_remote_code` is what keeps transformers from asking about the class in `auto_map`.
        return chosen.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a border: transformers and tokenizers raise all kinds for a broken file
        raise UnmaskError(f"{name}: tokenizer could not be read: {one_line(error)}") from error


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer so that transformers 4, which the authors' code pins, reads it too."""
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    path = folder / "tokenizer_config.json"
    settings = read_json(path, str(folder))
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    # How it was read here, and a class whose code is not saved with it.
    for key in ("is_local", "local_files_only", "auto_map"):
        settings.pop(key, None)
    if "extra_special_tokens" in settings:
        settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def render_prompt(tokenizer: PreTrainedTokenizerBase, prompt: str | Sequence[dict[str, Any]]) -> list[int]:
    """Prompt to token ids, up to where the response begins.

    Args:
        tokenizer: with a chat template, or without one.
        prompt: a text (one user message, if there is a template), or messages `{"role": .., "content": ..}`.

    Returns:
        Ids of the chat with the opening of the assistant's answer; without a template, of the text itself.
    """
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        # The template has written the beginning token already.
        return tokenizer.encode(text, add_special_tokens=False)
    if not isinstance(prompt, str):
        raise UnmaskError("this tokenizer has no chat template; give the prompt as one text, not as messages")
    return tokenizer.encode(prompt)


def end_token_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Ids at which a response is over: the end token and the end of a chat turn."""
    vocabulary = tokenizer.get_added_vocab()
    ids = {vocabulary[token] for token in END_OF_TURN if token in vocabulary}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return ids


def decode_response(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Text of response `ids` (L,) up to the first end token; special tokens, so also masks, are left out."""
    ends = end_token_ids(tokenizer)
    length = next((i for i, token in enumerate(ids) if token in ends), len(ids))
    text = tokenizer.decode(list(ids[:length]), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return str(text)
