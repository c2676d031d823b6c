"""Hub layout in, the same layout out; everything that can be wrong with a folder has one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM

from tests.golden_data import golden_model
from unmask.errors import UnmaskError, nearest
from unmask.models import Denoiser, LLaDAConfig, LLaDAModelLM, load, load_model, load_tokenizer, loading, save


def copy_of(folder: Path, to: Path) -> Path:
    to.mkdir(parents=True)
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def weights(folder: Path) -> dict[str, Tensor]:
    return {key: value for file in sorted(folder.glob("*.safetensors")) for key, value in load_file(file).items()}


def same_bytes(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[key].dtype == other[key].dtype and torch.equal(one[key].view(torch.uint8), other[key].view(torch.uint8))
        for key in one
    )


def config_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("shard", ["5GB", "60KB"])
def test_every_byte_and_config_field_survives_load_and_save(
    recorded_name: str,
    shard: str,
    tokenizer_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "MAX_SHARD_SIZE", shard)
    source = golden_model(recorded_name)
    save(load_model(source), load_tokenizer(tokenizer_folder("llada")), tmp_path / "saved")
    assert same_bytes(weights(source), weights(tmp_path / "saved"))
    files = list((tmp_path / "saved").glob("*.safetensors"))
    assert len(files) == 1 if shard == "5GB" else len(files) > 1
    saved = config_of(tmp_path / "saved")
    before = {key: value for key, value in config_of(source).items() if key != "transformers_version"}
    assert {key: saved.get(key) for key in before} == before
    again = load_model(tmp_path / "saved")
    assert same_bytes(again.state_dict(), weights(source))
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]  # no temporary folder is left


def test_weights_in_bfloat16_survive_too(
    recorded_name: str, tokenizer_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(tokenizer_folder("llada"))
    save(load_model(golden_model(recorded_name), dtype="bfloat16"), tokenizer, tmp_path / "half")
    save(load_model(tmp_path / "half", dtype="bfloat16"), tokenizer, tmp_path / "again")
    assert {tensor.dtype for tensor in weights(tmp_path / "half").values()} == {torch.bfloat16}
    assert same_bytes(weights(tmp_path / "half"), weights(tmp_path / "again"))
    assert config_of(tmp_path / "again")["torch_dtype"] == "bfloat16"


def test_what_the_authors_code_needs_is_written_beside_dream(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    save(*load(model_folder("dream")), tmp_path / "saved")
    wanted = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    config = config_of(model_folder("dream"))
    assert wanted["mask_token_id"] == config["mask_token_id"]
    assert config_of(tmp_path / "saved")["architectures"] == ["DreamModel"]


def test_the_authors_code_beside_a_checkpoint_goes_along(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    source = copy_of(model_folder("llada"), tmp_path / "source")
    change_config(auto_map={"AutoModel": "modeling_llada.LLaDAModelLM"})(source)
    (source / "modeling_llada.py").write_text("raise SystemExit('this code must not run')")
    save(*load(source), tmp_path / "saved")
    assert (tmp_path / "saved" / "modeling_llada.py").read_text().startswith("raise")
    load(tmp_path / "saved")


@torch.no_grad()
def test_transformers_own_loading_finds_our_classes(recorded_name: str) -> None:
    folder = golden_model(recorded_name)
    ours = load_model(folder)
    ids = torch.arange(6)[None]
    for auto in (AutoModel, AutoModelForCausalLM):
        theirs = auto.from_pretrained(folder)
        assert type(theirs) is type(ours) and not theirs.training
        assert torch.equal(theirs(ids).logits, ours(ids).logits)


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_load_gives_model_and_tokenizer_that_fit(family: str, model_folder: Callable[[str], Path]) -> None:
    for dtype in ("auto", "float64", "bfloat16", "float16"):
        model, tokenizer = load(str(model_folder(family)), dtype=dtype, device="cpu")
        assert isinstance(model, Denoiser) and model.family == family and not model.training
        assert model.dtype == (torch.float32 if dtype == "auto" else getattr(torch, dtype))
        assert tokenizer.convert_ids_to_tokens(model.mask_token_id) in ("<|mdm_mask|>", "<|mask|>")
        assert model.end_token_id == model.pad_token_id == tokenizer.eos_token_id


@torch.no_grad()
def test_tied_weights_are_stored_once_and_tied_again(tmp_path: Path, tokenizer_folder: Callable[[str], Path]) -> None:
    source = copy_of(golden_model("dream_gqa"), tmp_path / "tied")
    config = config_of(source) | {"tie_word_embeddings": True}
    (source / "config.json").write_text(json.dumps(config))
    tensors = weights(source)
    del tensors["lm_head.weight"]
    save_file(tensors, source / "model.safetensors")
    model = load_model(source)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    save(model, load_tokenizer(tokenizer_folder("dream")), tmp_path / "saved")
    assert same_bytes(weights(tmp_path / "saved"), tensors)


def drop(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def change_config(**fields: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(json.dumps(config_of(folder) | fields))


def change_weights(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        tensors = weights(folder)
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return apply


NORM = "model.transformer.ln_f.weight"

BROKEN = {
    "no config": ("llada_mha", drop("config.json"), ["config.json is missing"]),
    "config is not JSON": ("llada_mha", write("config.json", "{"), ["config.json is not valid JSON"]),
    "config is a list": ("llada_mha", write("config.json", "[]"), ["config.json must hold a JSON object"]),
    "another architecture": (
        "llada_mha",
        change_config(model_type="qwen2"),
        ["'qwen2' is not supported", "llada", "Dream"],
    ),
    "no weights": ("llada_mha", drop("model.safetensors"), ["no weights", "model.safetensors"]),
    "missing tensor": ("llada_mha", change_weights(lambda t: t.pop(NORM)), [NORM, "missing"]),
    "unknown tensor": (
        "llada_mha",
        change_weights(lambda t: t.update(extra=torch.zeros(1))),
        ["tensor extra in model.safetensors", "belongs to no layer"],
    ),
    "wrong shape": (
        "llada_mha",
        change_weights(lambda t: t.update({NORM: torch.zeros(3)})),
        [NORM, "model.safetensors", "(3,)"],
    ),
    "cut file": ("llada_mha", write("model.safetensors", "cut"), ["model.safetensors is not a readable"]),
    "missing shard": (
        "llada_gqa",
        lambda folder: sorted(folder.glob("model-00002-of-*.safetensors"))[0].unlink(),
        ["model-00002-of-", "is missing"],
    ),
    "empty index": ("llada_gqa", write("model.safetensors.index.json", "{}"), ["has no weight_map"]),
    "unsupported option": ("llada_mha", change_config(alibi=True), ["alibi=True is not supported"]),
    "nonsense in the config": ("llada_mha", change_config(rms_norm_eps="small"), ["rms_norm_eps='small'"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_folder_gets_one_line_that_names_the_fault(case: str, tmp_path: Path) -> None:
    name, break_it, expected = BROKEN[case]
    folder = copy_of(golden_model(name), tmp_path / "broken")
    break_it(folder)
    with pytest.raises(UnmaskError) as error:
        load_model(folder)
    message = str(error.value)
    assert "\n" not in message and str(folder) in message
    assert all(part in message for part in expected), message


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("./nowhere", "./nowhere: no such folder"),
        ("/nowhere/at/all", "no such folder"),
        (Path("nowhere/else"), "no such folder"),
        ("tinny", "did you mean tiny?"),
        ("a-name-without-an-owner", "hub name"),
    ],
)
def test_a_name_that_is_no_folder_says_so(name: str | Path, expected: str) -> None:
    with pytest.raises(UnmaskError, match=expected.replace("?", r"\?")):
        load(name)


def test_a_hub_that_does_not_answer_gives_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnmaskError) as error:
        load("GSAI-ML/LLaDA-8B-Instruct")
    assert str(error.value).startswith("GSAI-ML/LLaDA-8B-Instruct: no such folder, and the hub did not give it")
    assert "\n" not in str(error.value)


def test_a_downloaded_model_keeps_its_name_and_where_its_authors_code_is(
    monkeypatch: pytest.MonkeyPatch, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = copy_of(model_folder("llada"), tmp_path / "cache")
    change_config(auto_map={"AutoModel": "modeling_llada.LLaDAModelLM"})(copy)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: str(copy))
    model, tokenizer = load("owner/model")
    assert model.name_or_path == "owner/model"
    save(model, tokenizer, tmp_path / "saved")
    assert config_of(tmp_path / "saved")["auto_map"] == {"AutoModel": "owner/model--modeling_llada.LLaDAModelLM"}


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(UnmaskError, match="'bfloat' is unknown; did you mean bfloat16"):
        load_model(golden_model("llada_mha"), dtype="bfloat")


def test_an_unknown_or_absent_device_is_named() -> None:
    with pytest.raises(UnmaskError, match="device 'gpu' is unknown"):
        load_model(golden_model("llada_mha"), device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(UnmaskError, match="no CUDA device"):
            load_model(golden_model("llada_mha"), device="cuda:0")


def test_a_model_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(UnmaskError, match=r"no tokenizer: tokenizer\.json"):
        load(golden_model("llada_mha"))


def test_saving_replaces_an_earlier_save_and_nothing_else(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model, tokenizer = load(model_folder("llada"))
    target = tmp_path / "deep" / "target"
    save(model, tokenizer, target)
    (target / "old.txt").touch()
    save(model, tokenizer, target)
    assert not (target / "old.txt").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(UnmaskError, match="holds other files"):
        save(model, tokenizer, tmp_path / "mine")
    with pytest.raises(UnmaskError, match="is a file"):
        save(model, tokenizer, tmp_path / "mine" / "notes.txt")


def test_an_interrupted_save_leaves_the_earlier_one(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model, tokenizer = load(model_folder("llada"))
    save(model, tokenizer, tmp_path / "kept")
    before = weights(tmp_path / "kept")
    embedding: Any = model.get_input_embeddings()
    torch.nn.init.zeros_(embedding.weight)
    with pytest.raises(AttributeError):
        save(model, None, tmp_path / "kept")  # type: ignore[arg-type]
    assert same_bytes(before, weights(tmp_path / "kept"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_given_state_dict_is_saved_in_place_of_the_weights(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    model, tokenizer = load(model_folder("llada"))
    state = {key: torch.full_like(value, 2.0) for key, value in model.state_dict().items()}
    save(model, tokenizer, tmp_path / "saved", state_dict=state)
    assert same_bytes(weights(tmp_path / "saved"), state)


def test_unknown_config_fields_are_kept(tmp_path: Path, tokenizer_folder: Callable[[str], Path]) -> None:
    later: dict[str, Any] = {"a_later_field": {"x": [1]}}
    config = LLaDAConfig(d_model=8, n_heads=2, n_layers=1, vocab_size=5, **later)
    save(LLaDAModelLM(config), load_tokenizer(tokenizer_folder("llada")), tmp_path / "saved")
    assert config_of(tmp_path / "saved")["a_later_field"] == {"x": [1]}


def test_nearest_offers_a_close_name_or_all_names() -> None:
    assert nearest("forkgpro", ["forkgrpo", "wd1"]) == "; did you mean forkgrpo?"
    assert nearest("zzz", ["wd1", "forkgrpo"]) == "; known: forkgrpo, wd1"
    assert nearest("zzz", []) == "; none exist"
    assert nearest("zzz", map(str, range(100))).endswith(", ...")
