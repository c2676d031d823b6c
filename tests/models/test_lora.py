"""Adapters through PEFT: where they sit, what they leave alone, their files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from pydantic import ValidationError
from torch import nn

from tests.golden_data import golden_model
from unmask.errors import UnmaskError
from unmask.models import LoraSettings, add_lora, load, load_model, load_tokenizer, save, without_adapter

ALL_LINEAR = {
    "llada": {"q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out"},
    "dream": {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
}

IDS = torch.arange(12).view(2, 6)


@pytest.fixture(params=["llada", "dream"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def shake(model: PeftModel) -> PeftModel:
    """Adapters start as zero updates; make these ones count."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


def adapted(model: PeftModel) -> list[str]:
    return [name for name, module in model.named_modules() if hasattr(module, "lora_A")]


def test_all_linear_is_every_layer_of_every_block_and_never_the_head(
    family: str, model_folder: Callable[[str], Path]
) -> None:
    names = adapted(add_lora(load_model(model_folder(family)), LoraSettings(rank=2)))
    assert {name.split(".")[-1] for name in names} == ALL_LINEAR[family]
    assert len(names) == 2 * 7


def test_llada_s_ff_out_means_the_layer_in_the_blocks_and_not_the_head() -> None:
    model = add_lora(load_model(golden_model("llada_mha")), LoraSettings(rank=2, targets=["ff_out"]))
    assert adapted(model) and all("blocks" in name for name in adapted(model))


def test_only_adapters_are_trained_and_all_of_them_get_gradients(
    family: str, model_folder: Callable[[str], Path]
) -> None:
    model = shake(add_lora(load_model(model_folder(family)), LoraSettings(rank=2)))
    model.gradient_checkpointing_enable()
    model(IDS, scored=torch.tensor([[5], [0]])).logits.log_softmax(-1)[..., 0].sum().backward()
    for name, parameter in model.named_parameters():
        assert ("lora_" in name) == (parameter.grad is not None), name


@torch.no_grad()
def test_with_the_adapter_off_it_is_the_base_model(family: str, model_folder: Callable[[str], Path]) -> None:
    base = load_model(model_folder(family))(IDS).logits
    model = add_lora(load_model(model_folder(family)), LoraSettings(rank=2))
    assert torch.equal(model(IDS).logits, base)  # a new adapter changes nothing
    shake(model)
    changed = model(IDS).logits
    assert (changed - base).abs().max() > 0.1
    with without_adapter(model) as off:
        assert torch.equal(off(IDS).logits, base)
        assert torch.equal(model.head(off(IDS, return_hidden=True).hidden), base)
    assert torch.equal(model(IDS).logits, changed)
    assert any(parameter.requires_grad for parameter in model.parameters())


@torch.no_grad()
def test_a_saved_adapter_loads_with_its_base_and_computes_the_same(
    family: str, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    base, tokenizer = load(model_folder(family))
    model = shake(add_lora(base, LoraSettings(rank=2)))
    save(model, tokenizer, tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    again, _ = load(tmp_path / "adapter")
    assert isinstance(again, PeftModel) and not again.training
    assert torch.equal(again(IDS).logits, model(IDS).logits)
    assert any(parameter.requires_grad for parameter in again.parameters())
    by_peft = PeftModel.from_pretrained(load_model(model_folder(family)), tmp_path / "adapter")
    assert torch.equal(by_peft(IDS).logits, model(IDS).logits)


def test_a_target_that_matches_nothing_lists_the_layers_that_exist() -> None:
    model = load_model(golden_model("llada_mha"))
    published = LoraSettings(targets=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj"])
    with pytest.raises(UnmaskError) as error:
        add_lora(model, published)
    assert "o_proj matches no layer" in str(error.value)
    assert all(name in str(error.value) for name in ALL_LINEAR["llada"])
    with pytest.raises(UnmaskError, match="targets is empty"):
        add_lora(model, LoraSettings(targets=[]))
    assert not any("lora" in name for name, _ in model.named_parameters())


def test_a_second_adapter_and_a_reference_without_one_are_refused() -> None:
    model = load_model(golden_model("dream_gqa"))
    with pytest.raises(UnmaskError, match="without an adapter"), without_adapter(model):
        pass
    with pytest.raises(UnmaskError, match="has an adapter already"):
        add_lora(add_lora(model, LoraSettings(rank=1)), LoraSettings(rank=1))


def test_settings_are_checked() -> None:
    for wrong in ({"rank": 0}, {"dropout": 1.0}, {"targets": "everything"}, {"ranks": 3}):
        with pytest.raises(ValidationError):
            LoraSettings(**wrong)


def test_an_adapter_whose_base_is_gone_or_unnamed_says_so(
    model_folder: Callable[[str], Path], tokenizer_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(tokenizer_folder("llada"))
    model = add_lora(load_model(model_folder("llada")), LoraSettings(rank=1))
    for base, message in (
        (str(tmp_path / "gone"), "gone: no such folder"),
        (None, "base_model_name_or_path is empty"),
    ):
        model.peft_config["default"].base_model_name_or_path = base
        model.get_base_model().name_or_path = None  # type: ignore[assignment]
        save(model, tokenizer, tmp_path / "adapter")
        with pytest.raises(UnmaskError, match=message):
            load(tmp_path / "adapter")
