"""Dream (Dream-7B, DiffuCoder): Qwen2's network without the causal mask, still aligned to the next token.

The network's output at position i - 1 is its prediction of token i; `Denoiser.forward` undoes this, so that
callers see the alignment of every other family. Parameter names and config fields are those of the released
checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import PretrainedConfig

from unmask.models.denoiser import Denoiser, initialize, require, require_sizes
from unmask.models.layers import Block, Context, attend, gated, rows


class DreamConfig(PretrainedConfig):
    """Dream's configuration with the released field names; unknown fields are kept and saved again.

    Defaults describe Dream-7B, apart from the token ids, which every checkpoint has to name.
    """

    model_type = "Dream"

    hidden_size: int = 3584
    intermediate_size: int = 18944
    num_hidden_layers: int = 28
    num_attention_heads: int = 28
    num_key_value_heads: int = 4
    vocab_size: int = 152064
    """Rows of embedding and head; the last ones belong to no token."""
    max_position_embeddings: int = 131072
    rope_theta: float = 1000000.0
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    tie_word_embeddings: bool = False
    mask_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None

    # Only implemented at these values, see SUPPORTED.
    hidden_act: str = "silu"
    attention_dropout: float = 0.0
    rope_scaling: dict[str, Any] | None = None
    use_sliding_window: bool = False

    # Without effect on what the model computes; kept because the authors' code looks for them.
    max_window_layers: int = 28
    sliding_window: int | None = None
    use_cache: bool = False

    @property
    def width(self) -> int:
        """Rows of embedding and head (V in `logits`)."""
        return self.vocab_size


SUPPORTED: dict[str, Sequence[Any]] = {
    "hidden_act": ["silu"],
    "attention_dropout": [0.0],
    "rope_scaling": [None],
    "use_sliding_window": [False],
}


class DreamAttention(nn.Module):
    """Grouped-query attention with biases on queries, keys and values."""

    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        d = config.hidden_size
        self.head_dim = d // config.num_attention_heads
        kv = self.head_dim * config.num_key_value_heads
        self.q_proj = nn.Linear(d, d, bias=True)
        self.k_proj = nn.Linear(d, kv, bias=True)
        self.v_proj = nn.Linear(d, kv, bias=True)
        self.o_proj = nn.Linear(d, d, bias=False)

    def forward(self, h: Tensor, context: Context, queries: Tensor | None) -> Tensor:
        """h (B, T, d) -> (B, T, d), or (B, S, d) for `queries` (B, S)."""
        return self.o_proj(attend(h, self.q_proj, self.k_proj, self.v_proj, self.head_dim, context, queries))


class DreamMLP(nn.Module):
    """Gated MLP."""

    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        """(.., d) -> (.., d)."""
        return self.down_proj(gated(self.gate_proj(h), self.up_proj(h)))


class DreamBlock(Block):
    """Pre-norm attention and gated MLP, each added to the residual stream."""

    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        self.self_attn = DreamAttention(config)
        self.mlp = DreamMLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def compute(self, x: Tensor, context: Context, queries: Tensor | None) -> Tensor:
        x = rows(x, queries) + self.self_attn(self.input_layernorm(x), context, queries)
        return x + self.mlp(self.post_attention_layernorm(x))


class DreamModel(Denoiser):
    """Dream with its head. The class name is part of the released format (`architectures`)."""

    config_class = DreamConfig
    config: DreamConfig
    family = "dream"
    is_shifted = True
    base_model_prefix = "model"
    _no_split_modules = ["DreamBlock"]  # noqa: RUF012 (declared so by transformers)
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: DreamConfig) -> None:
        require(config, SUPPORTED)
        require_sizes(config)
        super().__init__(config)
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(config.vocab_size, config.hidden_size),
                "layers": nn.ModuleList(DreamBlock(config) for _ in range(config.num_hidden_layers)),
                "norm": nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps),
            }
        )
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def embed(self, input_ids: Tensor) -> Tensor:
        return self.model["embed_tokens"](input_ids)

    def blocks(self) -> Sequence[Block]:
        return self.model["layers"]

    def final_norm(self, x: Tensor) -> Tensor:
        return self.model["norm"](x)

    def head(self, hidden: Tensor) -> Tensor:
        return self.lm_head(hidden)

    @property
    def rotary(self) -> tuple[int, float]:
        return self.config.hidden_size // self.config.num_attention_heads, self.config.rope_theta

    def companion_files(self) -> dict[str, dict[str, Any]]:
        """Dream's own `from_pretrained` fails without a generation config."""
        keys = ("bos_token_id", "eos_token_id", "pad_token_id", "mask_token_id")
        return {
            "generation_config.json": {"_from_model_config": True}
            | {key: getattr(self.config, key) for key in keys if getattr(self.config, key) is not None}
        }

    def get_input_embeddings(self) -> nn.Module:
        return self.model["embed_tokens"]

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model["embed_tokens"] = value

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    def _init_weights(self, module: nn.Module) -> None:
        initialize(module, self.config.initializer_range)
