"""Models recorded from the authors' code, and tokenizer files laid out as the families release them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.golden_data import golden_model
from unmask.models import (
    Denoiser,
    DreamConfig,
    DreamModel,
    LLaDAConfig,
    LLaDAModelLM,
    load_model,
    load_tokenizer,
)
from unmask.models.tokenizing import save_tokenizer

RECORDED = ["llada_mha", "llada_gqa", "dream_gqa"]

LLADA_TEMPLATE = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
"""LLaDA-8B-Instruct's: the opening of the answer is there whether asked for or not."""

DREAM_TEMPLATE = (
    "{%- if messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role != 'system' %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""Dream's, which is Qwen2.5's; without its branches for tools."""

LLADA_SPECIAL = [
    "<|startoftext|>",
    "<|endoftext|>",
    "[CLS]",
    "[gMASK]",
    "<|reserved_token_0|>",
    "<|mdm_mask|>",
    "<role>",
    "</role>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]
DREAM_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>"]

MERGES = [("Ġ", "t"), ("h", "e"), ("u", "s"), ("us", "e"), ("use", "r"), ("Ġt", "he")]


def byte_vocabulary() -> dict[str, int]:
    """All bytes, then the merged pieces: byte-level BPE as both families use it, with few merges."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet()) + [a + b for a, b in MERGES]
    return {piece: index for index, piece in enumerate(pieces)}


def decoder_entry(token: str) -> dict[str, object]:
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {"content": token, **flags, "special": True}


def write_llada_tokenizer(folder: Path) -> None:
    """The files and fields of LLaDA-8B-Instruct; its tokenizer calls no token the mask token."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = byte_vocabulary()
    tokenizer = Tokenizer(models.BPE(vocabulary, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(LLADA_SPECIAL)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "add_bos_token": False,
        "add_eos_token": False,
        "added_tokens_decoder": {
            str(len(vocabulary) + i): decoder_entry(token) for i, token in enumerate(LLADA_SPECIAL)
        },
        "additional_special_tokens": ["<role>", "</role>"],
        "bos_token": "<|startoftext|>",
        "chat_template": LLADA_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "cls_token": "[CLS]",
        "eos_token": "<|endoftext|>",
        "fast_tokenizer": True,
        "gmask_token": "[gMASK]",
        "merges_file": None,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 1000000000000000019884624838656,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "trust_remote_code": True,
        "vocab_file": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_dream_tokenizer(folder: Path) -> None:
    """vocab.json, merges.txt and the rest as Dream-v0-Instruct-7B has them, with a class of its own named."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = byte_vocabulary()
    added = {token: len(vocabulary) + i for i, token in enumerate(DREAM_SPECIAL)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, MERGES)) + "\n", encoding="utf-8")
    (folder / "added_tokens.json").write_text(json.dumps(added))
    named = {
        "bos_token": "<|beginoftext|>",
        "eos_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "pad_token": "<|endoftext|>",
        "additional_special_tokens": ["<|beginoftext|>", "<|mask|>"],
    }
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(index): decoder_entry(token) for token, index in added.items()},
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "chat_template": DREAM_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": 131072,
        "split_special_tokens": False,
        "tokenizer_class": "DreamTokenizer",
        "unk_token": None,
        **named,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def small_model(family: str, tokenizer: Any) -> Denoiser:
    """A random model whose ids are those of a tokenizer of its family."""
    ids: dict[str, Any] = {name: tokenizer.convert_tokens_to_ids(token) for name, token in SPECIAL_IDS[family].items()}
    size = len(tokenizer)
    if family == "llada":
        return LLaDAModelLM(
            LLaDAConfig(d_model=16, n_heads=2, n_layers=2, mlp_hidden_size=24, vocab_size=size, init_std=0.3, **ids)
        ).eval()
    return DreamModel(
        DreamConfig(
            hidden_size=16,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_hidden_layers=2,
            intermediate_size=24,
            vocab_size=size + 3,
            initializer_range=0.3,
            **ids,
        )
    ).eval()


SPECIAL_IDS = {
    "llada": {
        "mask_token_id": "<|mdm_mask|>",
        "eos_token_id": "<|endoftext|>",
        "pad_token_id": "<|endoftext|>",
    },
    "dream": {
        "mask_token_id": "<|mask|>",
        "eos_token_id": "<|endoftext|>",
        "pad_token_id": "<|endoftext|>",
        "bos_token_id": "<|endoftext|>",
    },
}

WRITERS = {"llada": write_llada_tokenizer, "dream": write_dream_tokenizer}


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder with only the tokenizer of a family, in its released layout; read it, do not write into it."""
    root = tmp_path_factory.mktemp("tokenizers")
    for family, write in WRITERS.items():
        write(root / family)
    return lambda family: root / family


@pytest.fixture(scope="session")
def model_folder(
    tmp_path_factory: pytest.TempPathFactory, tokenizer_folder: Callable[[str], Path]
) -> Callable[[str], Path]:
    """Folder with a random model of a family and its tokenizer; read it, do not write into it."""
    root = tmp_path_factory.mktemp("models")
    for family in WRITERS:
        tokenizer = load_tokenizer(tokenizer_folder(family))
        small_model(family, tokenizer).save_pretrained(root / family)
        save_tokenizer(tokenizer, root / family)
    return lambda family: root / family


@pytest.fixture(params=RECORDED)
def recorded_name(request: pytest.FixtureRequest) -> str:
    """Each recorded model in turn."""
    return request.param


@pytest.fixture
def recorded(recorded_name: str) -> Denoiser:
    """Each recorded model in turn, in float64, so that equal means equal to 1e-10."""
    return load_model(golden_model(recorded_name), dtype="float64")
