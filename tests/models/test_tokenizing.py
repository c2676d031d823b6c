"""Tokenizers in the layouts that the families release, read without running code from the folder."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from unmask.errors import UnmaskError
from unmask.models import decode_response, load_tokenizer, render_prompt
from unmask.models.tokenizing import end_token_ids, save_tokenizer

EXPECTED = {
    "llada": "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nthe user<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "dream": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\nthe user<|im_end|>\n<|im_start|>assistant\n",
}
"""What the authors' prompts look like for the message `the user`."""

END_OF_TURN = {"llada": "<|eot_id|>", "dream": "<|im_end|>"}

MASK = {"llada": "<|mdm_mask|>", "dream": "<|mask|>"}


@pytest.fixture(params=["llada", "dream"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_prompt_is_the_family_s_chat_up_to_the_answer(family: str, tokenizer_folder: Callable[[str], Path]) -> None:
    tokenizer = load_tokenizer(tokenizer_folder(family))
    ids = render_prompt(tokenizer, "the user")
    assert tokenizer.decode(ids) == EXPECTED[family]
    assert render_prompt(tokenizer, [{"role": "user", "content": "the user"}]) == ids


def test_special_tokens_are_one_token_each_with_the_released_ids(
    family: str, tokenizer_folder: Callable[[str], Path]
) -> None:
    tokenizer = load_tokenizer(tokenizer_folder(family))
    for index, entry in tokenizer.added_tokens_decoder.items():
        assert tokenizer.encode(str(entry), add_special_tokens=False) == [index]
    assert tokenizer.convert_ids_to_tokens(tokenizer.eos_token_id) == "<|endoftext|>"
    assert len(tokenizer) == 1 + max(tokenizer.get_vocab().values())


def test_text_survives_encoding_and_decoding(family: str, tokenizer_folder: Callable[[str], Path]) -> None:
    tokenizer = load_tokenizer(tokenizer_folder(family))
    text = "the user's  x = {1, 2}\n\n\tnaïve – 数"
    assert decode_response(tokenizer, tokenizer.encode(text, add_special_tokens=False)) == text


def test_a_response_ends_at_the_first_end_token_and_shows_no_masks(
    family: str, tokenizer_folder: Callable[[str], Path]
) -> None:
    tokenizer = load_tokenizer(tokenizer_folder(family))
    mask = MASK[family]
    for end in ("<|endoftext|>", END_OF_TURN[family]):
        text = f"the {mask}answer{end} more{mask}{end}"
        assert decode_response(tokenizer, tokenizer.encode(text, add_special_tokens=False)) == "the answer"
    assert decode_response(tokenizer, []) == ""
    assert len(end_token_ids(tokenizer)) == 2


def test_without_a_template_the_prompt_is_the_text(tokenizer_folder: Callable[[str], Path]) -> None:
    tokenizer = load_tokenizer(tokenizer_folder("llada"))
    tokenizer.chat_template = None
    assert tokenizer.decode(render_prompt(tokenizer, "the user")) == "the user"
    with pytest.raises(UnmaskError, match="no chat template"):
        render_prompt(tokenizer, [{"role": "user", "content": "the user"}])


def test_a_saved_tokenizer_is_the_same_again(
    family: str, tokenizer_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(tokenizer_folder(family))
    save_tokenizer(tokenizer, tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert render_prompt(again, "naïve 數 1234") == render_prompt(tokenizer, "naïve 數 1234")
    assert again.mask_token_id == tokenizer.mask_token_id
    assert again.all_special_tokens == tokenizer.all_special_tokens
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    # What transformers 4 reads: a class that it has, no code that is not there, its name for further tokens.
    assert settings["tokenizer_class"] == {"llada": "PreTrainedTokenizerFast", "dream": "Qwen2Tokenizer"}[family]
    assert "auto_map" not in settings
    assert "additional_special_tokens" in settings and "chat_template" in settings


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tokenizer.json", "{", "could not be read"),
        ("tokenizer_config.json", "{", "tokenizer_config.json is not valid JSON"),
        ("tokenizer.json", None, "no tokenizer: tokenizer.json"),
    ],
)
def test_a_broken_tokenizer_is_named_in_one_line(
    file: str, content: str | None, message: str, tokenizer_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    for source in tokenizer_folder("llada").iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(UnmaskError) as error:
        load_tokenizer(tmp_path)
    assert message in str(error.value) and str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
