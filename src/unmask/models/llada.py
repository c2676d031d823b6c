"""LLaDA (LLaDA-8B, LLaDA 1.5): a bidirectional Llama whose output at a position is about that position.

Parameter names and config fields are those of the released checkpoints, so that weights move both ways
unchanged. Not here: the checkpoint variants that LLaDA's config could describe and no release uses; they are
refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig

from unmask.errors import UnmaskError
from unmask.models.denoiser import Denoiser, initialize, require, require_sizes
from unmask.models.layers import Block, Context, attend, gated, rows


class LLaDAConfig(PretrainedConfig):
    """LLaDA's configuration with the released field names; unknown fields are kept and saved again.

    Defaults describe LLaDA-8B, apart from the token ids, which every checkpoint has to name.
    """

    model_type = "llada"
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "max_position_embeddings": "max_sequence_length",
        "tie_word_embeddings": "weight_tying",
    }

    d_model: int = 4096
    n_heads: int = 32
    n_kv_heads: int | None = None
    """Heads of keys and values; `None` = as many as `n_heads`, or one with `multi_query_attention`."""
    multi_query_attention: bool | None = None
    n_layers: int = 32
    mlp_hidden_size: int | None = None
    """Inner width of the MLP; `None` = `mlp_ratio * d_model`."""
    mlp_ratio: int = 4
    vocab_size: int = 126464
    embedding_size: int | None = None
    """Rows of embedding and head, at least `vocab_size`; `None` = `vocab_size`."""
    max_sequence_length: int = 4096
    rope_theta: float = 500000.0
    rms_norm_eps: float = 1e-5
    include_bias: bool = False
    include_qkv_bias: bool = False
    weight_tying: bool = False
    scale_logits: bool = False
    """Divide logits by the square root of `d_model`."""
    init_std: float = 0.02
    mask_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None

    # Only implemented at these values, see SUPPORTED.
    block_type: str = "llama"
    block_group_size: int = 1
    activation_type: str = "silu"
    alibi: bool = False
    rope: bool = True
    attention_layer_norm: bool = False
    layer_norm_type: str = "rms"
    layer_norm_with_affine: bool = True
    bias_for_layer_norm: bool | None = False
    input_emb_norm: bool = False
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0

    # Without effect on what the model computes; kept because the authors' code looks for them.
    alibi_bias_max: float = 8.0
    attention_layer_norm_with_affine: bool = True
    flash_attention: bool = False
    init_cutoff_factor: float | None = None
    init_device: str | None = None
    init_fn: str = "mitchell"
    precision: str | None = None
    rope_full_precision: bool = True
    use_cache: bool = False

    @property
    def num_key_value_heads(self) -> int:
        """Heads of keys and values, with the defaults resolved."""
        return self.n_kv_heads or (1 if self.multi_query_attention else self.n_heads)

    @property
    def width(self) -> int:
        """Rows of embedding and head (V in `logits`)."""
        return self.embedding_size or self.vocab_size

    @property
    def intermediate_size(self) -> int:
        """Width inside the gated MLP."""
        return self.mlp_hidden_size or self.mlp_ratio * self.d_model


SUPPORTED: dict[str, Sequence[Any]] = {
    "block_type": ["llama"],
    "block_group_size": [1],
    "activation_type": ["silu"],
    "alibi": [False],
    "rope": [True],
    "attention_layer_norm": [False],
    "layer_norm_type": ["rms"],
    "layer_norm_with_affine": [True],
    "bias_for_layer_norm": [False],
    "input_emb_norm": [False],
    "attention_dropout": [0.0],
    "residual_dropout": [0.0],
    "embedding_dropout": [0.0],
}


class LLaDABlock(Block):
    """Pre-norm attention and gated MLP, each added to the residual stream."""

    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__()
        d = config.d_model
        self.head_dim = d // config.n_heads
        kv = self.head_dim * config.num_key_value_heads
        inner = config.intermediate_size
        bias, qkv_bias = config.include_bias, config.include_bias or config.include_qkv_bias
        self.attn_norm = nn.RMSNorm(d, eps=config.rms_norm_eps)
        self.q_proj = nn.Linear(d, d, bias=qkv_bias)
        self.k_proj = nn.Linear(d, kv, bias=qkv_bias)
        self.v_proj = nn.Linear(d, kv, bias=qkv_bias)
        self.attn_out = nn.Linear(d, d, bias=bias)
        self.ff_norm = nn.RMSNorm(d, eps=config.rms_norm_eps)
        self.ff_proj = nn.Linear(d, inner, bias=bias)
        self.up_proj = nn.Linear(d, inner, bias=bias)
        self.ff_out = nn.Linear(inner, d, bias=bias)

    def compute(self, x: Tensor, context: Context, queries: Tensor | None) -> Tensor:
        h = self.attn_norm(x)
        a = attend(h, self.q_proj, self.k_proj, self.v_proj, self.head_dim, context, queries)
        x = rows(x, queries) + self.attn_out(a)
        h = self.ff_norm(x)
        return x + self.ff_out(gated(self.ff_proj(h), self.up_proj(h)))


class LLaDAModelLM(Denoiser):
    """LLaDA with its head. The class name is part of the released format (`architectures`)."""

    config_class = LLaDAConfig
    config: LLaDAConfig
    family = "llada"
    is_shifted = False
    base_model_prefix = "model"
    _no_split_modules = ["LLaDABlock"]  # noqa: RUF012 (declared so by transformers)

    def __init__(self, config: LLaDAConfig) -> None:
        require(config, SUPPORTED)
        require_sizes(config)
        if config.include_bias and config.bias_for_layer_norm is None:
            raise UnmaskError("model config: bias_for_layer_norm=None asks for norm biases here; only False")
        super().__init__(config)
        transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.width, config.d_model),
                "blocks": nn.ModuleList(LLaDABlock(config) for _ in range(config.n_layers)),
                "ln_f": nn.RMSNorm(config.d_model, eps=config.rms_norm_eps),
            }
        )
        if not config.weight_tying:
            transformer["ff_out"] = nn.Linear(config.d_model, config.width, bias=config.include_bias)
        self.model = nn.ModuleDict({"transformer": transformer})
        self.post_init()

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.get_input_embeddings()(input_ids)

    def blocks(self) -> Sequence[Block]:
        return self.model["transformer"]["blocks"]

    def final_norm(self, x: Tensor) -> Tensor:
        return self.model["transformer"]["ln_f"](x)

    def head(self, hidden: Tensor) -> Tensor:
        out = self.get_output_embeddings()
        logits = F.linear(hidden, self.get_input_embeddings().weight) if out is None else out(hidden)
        return logits / math.sqrt(self.config.d_model) if self.config.scale_logits else logits

    @property
    def rotary(self) -> tuple[int, float]:
        return self.config.d_model // self.config.n_heads, self.config.rope_theta

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model["transformer"]["wte"]

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model["transformer"]["wte"] = value

    def get_output_embeddings(self) -> nn.Module | None:
        """The head, or `None` when it shares the embedding's weight (then no such parameter exists)."""
        transformer = self.model["transformer"]
        return transformer["ff_out"] if "ff_out" in transformer else None  # noqa: SIM401 (no get)

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.model["transformer"]["ff_out"] = new_embeddings

    def _init_weights(self, module: nn.Module) -> None:
        std = self.config.init_std
        initialize(module, std)
        if isinstance(module, LLaDABlock):
            # What is added to the residual stream starts smaller: its variance must not grow with depth.
            for out in (module.attn_out, module.ff_out):
                nn.init.normal_(out.weight, std=std / math.sqrt(2 * self.config.n_layers))
