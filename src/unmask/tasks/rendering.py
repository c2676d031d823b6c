"""Between a task's text and a model's tokens: batches of left-padded prompts, responses back to text."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unmask.models import decode_response, render_prompt
from unmask.tasks.task import Example, Task


def prompt_tokens(task: Task, example: Example, tokenizer: Any) -> list[int]:
    """Token ids of one prompt: through the chat template with the task's instruction where the tokenizer has one."""
    if tokenizer.chat_template:
        return render_prompt(tokenizer, [{"role": "user", "content": task.message(example)}])
    return render_prompt(tokenizer, task.prompt(example))


def prompt_batch(task: Task, examples: Sequence[Example], tokenizer: Any) -> tuple[Tensor, Tensor]:
    """Prompts as (n, P) int64 ids padded on the left, and (n, P) bool, true on real tokens; any id can fill padding."""
    return left_pad([prompt_tokens(task, example, tokenizer) for example in examples], tokenizer.pad_token_id or 0)


def left_pad(rows: Sequence[list[int]], pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Lists of ids → (n, P) ids and (n, P) bool, true on real tokens."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad_token_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    return ids, mask


def response_text(tokenizer: Any, response_ids: Tensor) -> list[str]:
    """(B, L) response ids → texts up to the first end token."""
    return [decode_response(tokenizer, row) for row in response_ids.tolist()]
