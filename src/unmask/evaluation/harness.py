"""Unmask's models in EleutherAI's lm-evaluation-harness: `pip install unmask[harness]`, which this module needs.

    python -m unmask.evaluation.harness --model unmask --model_args pretrained=tiny,order=dynamic,block=32 --tasks gsm8k

The harness finds only models that were registered in its own process. This module registers `unmask`; run as a program
it then hands over to the harness's command line, whose arguments it takes. From Python,
`lm_eval.simple_evaluate(model=UnmaskLM("tiny"), tasks=[...])`.

Not here: how a likelihood is estimated (`likelihood.py`), and Unmask's own tasks (`evaluate.py`).
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from pydantic import ValidationError
from rich.console import Console
from rich.progress import track

from unmask.decoding import Decoding, sample
from unmask.errors import UnmaskError, nearest
from unmask.evaluation.likelihood import is_greedy, likelihood_bound, random_masks
from unmask.models import decode_response, load
from unmask.randomness import name_seed
from unmask.tasks.rendering import left_pad

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs  # registers the harness's own models, before ours
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ModuleNotFoundError as error:
    _NEEDS = f"lm-evaluation-harness is needed: pip install 'unmask[harness]' ({error})"
    if __name__ == "__main__":
        raise SystemExit(f"unmask: {_NEEDS}") from None
    raise ImportError(_NEEDS) from error

REQUESTS_AT_ONCE = 256
"""Generations between two reports of progress; the sampler keeps its batches full among these."""

MASKED_AT_ONCE = 2**21
"""Positions of masks held at a time (targets × draws × length)."""

Pair = tuple[list[int], list[int]]
"""Token ids of a context and of the target that follows it."""


@register_model("unmask")
class UnmaskLM(TemplateLM):
    """Any model that Unmask loads.

    Likelihoods are Monte Carlo estimates of a lower bound, each unbiased (`likelihood.py`), not exact values as those
    of causal models: compare them among diffusion models. `is_greedy` says whether greedy decoding one token a step,
    the surest first, writes the target. Contexts are never cut. One process; batches are limited by `batch_tokens`.

    Args:
        pretrained: name on the hub, folder, checkpoint, or `tiny`.
        seed: of all draws. A request's draws depend on the seed and its context (and on how often the context was
            asked before, when generating), so targets of one context are compared on the same masks.
        mc_samples: masks drawn for each likelihood; the authors' of LLaDA take 128.
        dtype, device: as for `unmask.load`, but without CUDA a CUDA device is the CPU.
        batch_size: what the harness passes; only its default, 1, is taken.
        decoding: settings of `Decoding`. They stand in place of what a task says; `length`, in place of its
            `max_gen_toks`.

    Raises:
        UnmaskError: a setting is unknown or wrong, or the model cannot be loaded.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        seed: int = 0,
        mc_samples: int = 128,
        dtype: str = "auto",
        device: str | None = None,
        batch_size: int | str = 1,
        **decoding: Any,
    ) -> None:
        super().__init__()
        if str(batch_size) != "1":
            raise UnmaskError(f"batch_size={batch_size}: rows share batches of batch_tokens tokens; leave it out")
        if mc_samples < 1:
            raise UnmaskError(f"mc_samples={mc_samples}: must be at least 1")
        for name in decoding:
            if name not in Decoding.model_fields:
                raise UnmaskError(f"model_args: {name} is unknown{nearest(name, (*_OPTIONS, *Decoding.model_fields))}")
        self.seed, self.mc_samples, self.decoding = seed, mc_samples, decoding
        limit = {name: value for name, value in decoding.items() if name == "batch_tokens"}
        self.batch_tokens = response_settings({}, limit)[0].batch_tokens
        self.pretrained = str(pretrained)
        if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
            device = None  # the command line says cuda:0 when nobody does, and its own models then take what there is
        self.model, self.tokenizer = load(self.pretrained, dtype=dtype, device=device)
        self._device = next(self.model.parameters()).device

    # Text and tokens

    @property
    def eot_token_id(self) -> int:
        return self.model.end_token_id

    @property
    def prefix_token_id(self) -> int:
        """What stands for an empty context."""
        begin = self.tokenizer.bos_token_id
        return self.eot_token_id if begin is None else int(begin)

    @property
    def tokenizer_name(self) -> str:
        """Names the chat template in the harness's request cache."""
        return self.pretrained.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        if add_special_tokens is None:
            # a chat template has written the beginning token already
            begin = self.tokenizer.bos_token
            add_special_tokens = not (begin and string.startswith(begin))
        ids: list[int] = self.tokenizer.encode(string, add_special_tokens=add_special_tokens)
        return ids

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        self._need_template()
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        if chat_template:
            self._need_template()
        template: str | None = super().chat_template(chat_template)
        return template

    def _need_template(self) -> None:
        if not self.tokenizer.chat_template:
            raise UnmaskError(f"{self.pretrained}: its tokenizer has no chat template; leave --apply_chat_template out")

    # What the harness asks for

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """A response to each (context, settings) request, up to the first end token or stop string."""
        asked: Counter[str] = Counter()
        keys = []
        same_settings: dict[Decoding, list[int]] = defaultdict(list)
        stops = []
        for index, request in enumerate(requests):
            context, settings = request.args
            keys.append(name_seed(self.seed, "harness generation", asked[context], context))
            asked[context] += 1
            decoding, until = response_settings(settings, self.decoding)
            same_settings[decoding].append(index)
            stops.append(until)
        contexts = [self.tok_encode(request.args[0]) or [self.prefix_token_id] for request in requests]
        chunks = []
        for decoding, chosen in same_settings.items():
            chosen.sort(key=lambda index: len(contexts[index]))
            starts = range(0, len(chosen), REQUESTS_AT_ONCE)
            chunks += [(decoding, chosen[start : start + REQUESTS_AT_ONCE]) for start in starts]
        responses = [""] * len(requests)
        for decoding, chunk in _shown(chunks, "generating", disable_tqdm):
            ids, mask = left_pad([contexts[index] for index in chunk], 0)
            key, row = torch.tensor([keys[index] for index in chunk]), torch.arange(len(chunk))
            rollout = sample(self.model, ids, mask, decoding, key, prompt=row, group=row)
            for index, response in zip(chunk, rollout.response_ids.tolist(), strict=True):
                responses[index] = before(decode_response(self.tokenizer, response), stops[index])
                self.cache_hook.add_partial("generate_until", requests[index].args, responses[index])
        return responses

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """What `loglikelihood` asks for once it has made tokens of (context, continuation)."""
        pairs = [(context or [self.prefix_token_id], target) for _, context, target in requests]
        results = [(0.0, True)] * len(pairs)
        for chunk in _shown(self._chunks(pairs), "likelihoods", disable_tqdm):
            batch = _Batch(self, [pairs[index] for index in chunk])
            for index, bound, greedy in zip(chunk, batch.bounds(), batch.greedy(), strict=True):
                results[index] = (bound, greedy)
        return results

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """The bound for whole texts, in windows of at most the model's longest sequence that hold each token once.

        A later window sees one token before it; the last, which may be short, as many as there is room for.
        """
        longest = self.model.config.max_position_embeddings - 1
        pairs, owner = [], []
        for number, request in enumerate(requests):
            ids = self.tok_encode(request.args[0])
            for window in get_rolling_token_windows(ids, self.prefix_token_id, longest, context_len=1):
                pairs.append(make_disjoint_window(window))
                owner.append(number)
        totals = [0.0] * len(requests)
        for chunk in _shown(self._chunks(pairs), "likelihoods", disable_tqdm):
            for index, bound in zip(chunk, _Batch(self, [pairs[index] for index in chunk]).bounds(), strict=True):
                totals[owner[index]] += bound
        return totals

    def _chunks(self, pairs: Sequence[Pair]) -> list[list[int]]:
        """Indices of pairs with targets of one length, those of one context together; empty targets are in none."""
        same_length: dict[int, list[int]] = defaultdict(list)
        for index, (_, target) in enumerate(pairs):
            same_length[len(target)].append(index)
        same_length.pop(0, None)
        chunks = []
        for length, chosen in same_length.items():
            chosen.sort(key=lambda index: (len(pairs[index][0]), pairs[index][0]))
            size = max(1, MASKED_AT_ONCE // (self.mc_samples * length))
            chunks += [chosen[start : start + size] for start in range(0, len(chosen), size)]
        return chunks


class _Batch:
    """B pairs whose targets have one length, as tensors on the model's device."""

    def __init__(self, lm: UnmaskLM, pairs: Sequence[Pair]) -> None:
        self.lm = lm
        contexts, targets = zip(*pairs, strict=True)
        numbers: dict[tuple[int, ...], int] = {}
        prompt = [numbers.setdefault(tuple(context), len(numbers)) for context in contexts]
        ids, mask = left_pad(contexts, 0)
        keys = [name_seed(lm.seed, "harness masks", *context) for context in contexts]
        device = lm._device
        self.target, self.key = torch.tensor(targets, device=device), torch.tensor(keys, device=device)
        self.pairs = (lm.model, ids.to(device), mask.to(device), self.target)
        self.options: dict[str, Any] = {
            "prompt": torch.tensor(prompt, device=device),
            "batch_tokens": lm.batch_tokens,
        }

    def bounds(self) -> list[float]:
        masked = random_masks(self.key, self.lm.mc_samples, self.target.shape[1])
        return likelihood_bound(*self.pairs, masked, **self.options).tolist()

    def greedy(self) -> list[bool]:
        return is_greedy(*self.pairs, **self.options).tolist()


def response_settings(task: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Decoding, list[str]]:
    """How to answer a request, and its stop strings.

    Args:
        task: the request's: `until`, `max_gen_toks`, `do_sample`, and any setting of `Decoding`. Without `do_sample`
            or a temperature, decoding is greedy, as with the harness's other models.
        given: settings of `Decoding` from the person who runs it, which come first.

    Raises:
        UnmaskError: a setting is unknown, or they do not fit together.
    """
    settings = dict(normalize_gen_kwargs(dict(task)))
    until, length, is_varied = (settings.pop(name) for name in ("until", "max_gen_toks", "do_sample"))
    settings = {"length": length, "temperature": 1.0 if is_varied else 0.0, **settings, **given}
    try:
        return Decoding(**settings), until
    except ValidationError as error:
        problem = error.errors()[0]
        name, says = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            raise UnmaskError(f"gen_kwargs: {name} is unknown{nearest(name, Decoding.model_fields)}") from error
        raise UnmaskError(f"{name}={problem['input']!r}: {says}" if name else says) from error


def before(text: str, stops: Iterable[str]) -> str:
    """`text` up to the first of the stop strings; an empty one stops nothing."""
    return text[: min((text.find(stop) for stop in stops if stop and stop in text), default=len(text))]


def main() -> None:
    """The harness's command line, with `unmask` among its models; a mistake is one line and exit code 2."""
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except UnmaskError as error:
        print(f"unmask: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _shown(chunks: Sequence[Any], what: str, is_silent: bool) -> Iterator[Any]:
    yield from track(chunks, what, console=Console(stderr=True), disable=is_silent)


_OPTIONS = ("pretrained", "seed", "mc_samples", "dtype", "device")

if __name__ == "__main__":
    main()
