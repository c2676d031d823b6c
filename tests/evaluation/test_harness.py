"""lm-evaluation-harness end to end on local tasks, offline, with the tiny model."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import unmask
from unmask.decoding import Decoding, sample
from unmask.errors import UnmaskError
from unmask.evaluation.likelihood import likelihood_bound, random_masks
from unmask.models import decode_response
from unmask.randomness import name_seed

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'unmask[harness]'")

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model, model_registry
from lm_eval.tasks import TaskManager

from unmask.evaluation.harness import UnmaskLM, _Batch, before, main, response_settings

QUESTIONS = ["1+2=", "3400 0012 0000 4321=", "2*(3+4)=", "4321 0034 1000 0200="]


@pytest.fixture(scope="module")
def lm() -> UnmaskLM:
    return UnmaskLM("tiny", length=8, order="static", steps=4, mc_samples=16)


def requests(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, argument, index) for index, argument in enumerate(arguments)]


def write_task(folder: Path, rows: list[dict[str, Any]], **config: Any) -> None:
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "task": "local",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": str(folder / "cache")},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        **config,
    }
    (folder / "local.yaml").write_text(yaml.safe_dump(task))


def run(folder: Path, model: Any, **options: Any) -> dict[str, Any]:
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = lm_eval.simple_evaluate(model=model, tasks=["local"], task_manager=manager, bootstrap_iters=0, **options)
    assert found is not None
    results: dict[str, Any] = found["results"]["local"]
    return results


def greedy_answers(length: int) -> list[str]:
    """What the sampler itself answers, one question at a time."""
    model, tokenizer = unmask.load("tiny")
    answers = []
    for question in QUESTIONS:
        ids = torch.tensor([tokenizer.encode(question)])
        row = torch.zeros(1, dtype=torch.int64)
        decoding = Decoding(order="static", length=length, steps=4, temperature=0)
        rollout = sample(model, ids, torch.ones_like(ids), decoding, row, prompt=row, group=row)
        answers.append(decode_response(tokenizer, rollout.response_ids[0].tolist()))
    return answers


def generation_task(folder: Path) -> None:
    """Half of the answers are what the model says, so that exact match is 1/2."""
    said = greedy_answers(8)
    rows = [
        {"question": q, "answer": a if i % 2 else a + "x"} for i, (q, a) in enumerate(zip(QUESTIONS, said, strict=True))
    ]
    write_task(
        folder,
        rows,
        output_type="generate_until",
        doc_to_target="{{answer}}",
        generation_kwargs={"until": ["#"], "max_gen_toks": 64, "do_sample": False},
        metric_list=[{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    )


def test_a_generation_task_end_to_end(tmp_path: Path) -> None:
    generation_task(tmp_path)
    results = run(tmp_path, "unmask", model_args="pretrained=tiny,length=8,order=static,steps=4", batch_size=1)
    assert results["exact_match,none"] == 0.5


@pytest.mark.slow  # the harness reads the list of all its tasks
def test_the_command_line_knows_unmask(tmp_path: Path) -> None:
    generation_task(tmp_path)
    command = [sys.executable, "-m", "unmask.evaluation.harness", "--model", "unmask", "--tasks", "local"]
    command += ["--model_args", "pretrained=tiny,length=8,order=static,steps=4", "--include_path", str(tmp_path)]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(
        [*command, "--output_path", str(tmp_path / "out")], capture_output=True, text=True, env=os.environ | offline
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (file,) = (tmp_path / "out").rglob("results_*.json")
    assert json.loads(file.read_text())["results"]["local"]["exact_match,none"] == 0.5


def test_a_mistake_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: UnmaskLM("tiny", oder="static"))
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == "unmask: model_args: oder is unknown; did you mean order?\n"


def test_a_multiple_choice_task_end_to_end(tmp_path: Path, lm: UnmaskLM) -> None:
    choices = ["3", "12", "4 4"]
    scores = lm.loglikelihood(requests("loglikelihood", *[(QUESTIONS[0], choice) for choice in choices]))
    best = max(range(3), key=lambda i: scores[i][0])
    rows = [{"question": QUESTIONS[0], "choices": choices, "label": label} for label in (best, (best + 1) % 3)]
    write_task(
        tmp_path,
        rows,
        output_type="multiple_choice",
        doc_to_choice="choices",
        doc_to_target="label",
        target_delimiter="",
        metric_list=[{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    )
    assert run(tmp_path, lm)["acc,none"] == 0.5


def test_a_perplexity_task_end_to_end(tmp_path: Path, lm: UnmaskLM) -> None:
    text = "1+2=3 4*(5-6)"
    write_task(
        tmp_path,
        [{"question": text}],
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{question}}",
        metric_list=[{"metric": "bits_per_byte"}],
    )
    (bound,) = lm.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    assert bound < 0
    expected = -bound / len(text) / torch.log(torch.tensor(2.0)).item()
    assert run(tmp_path, lm)["bits_per_byte,none"] == pytest.approx(expected, rel=1e-6)


def test_likelihoods_are_those_of_the_estimator(lm: UnmaskLM) -> None:
    """Target tokens, context and masks, worked out here; among requests of other lengths."""
    (_, (found, _), _) = lm.loglikelihood(
        requests("loglikelihood", (QUESTIONS[1], "1"), (QUESTIONS[0], "345"), ("", "12"))
    )
    context, target = lm.tokenizer.encode(QUESTIONS[0]), lm.tokenizer.encode("345")
    masked = random_masks(torch.tensor([name_seed(0, "harness masks", *context)]), 16, 3)
    ids, row = torch.tensor([context]), torch.zeros(1, dtype=torch.int64)
    expected = likelihood_bound(
        lm.model, ids, torch.ones_like(ids).bool(), torch.tensor([target]), masked, prompt=row, batch_tokens=1000
    )
    assert found == pytest.approx(expected.item(), abs=1e-4)


def test_the_greedy_answer_is_greedy_and_an_empty_one_is_sure(lm: UnmaskLM) -> None:
    said = UnmaskLM("tiny", length=4, order="static").generate_until(
        requests("generate_until", *[(question, {"until": []}) for question in QUESTIONS])
    )
    whole = [(question, answer) for question, answer in zip(QUESTIONS, said, strict=True) if len(answer) == 4]
    assert whole  # else the test says nothing
    found = lm.loglikelihood(requests("loglikelihood", *whole, (QUESTIONS[0], "((((")))
    assert [greedy for _, greedy in found] == [True] * len(whole) + [False]
    assert lm.loglikelihood(requests("loglikelihood", (QUESTIONS[0], ""))) == [(0.0, True)]


def test_long_texts_are_scored_in_windows_that_hold_every_token_once() -> None:
    lm, text = UnmaskLM("tiny", mc_samples=2), "0123456789" * 60  # 600 tokens; the model's longest sequence is 512
    (whole,) = lm.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    ids = lm.tok_encode(text)
    windows = [([lm.prefix_token_id], ids[:511]), (ids[88:511], ids[511:])]
    assert whole == pytest.approx(sum(bound for window in windows for bound in _Batch(lm, [window]).bounds()), rel=1e-5)


def test_answers_depend_on_seed_context_and_repeat_alone() -> None:
    settings = {"until": [], "do_sample": True, "temperature": 1.0, "max_gen_toks": 8}
    ask = requests("generate_until", *[(question, settings) for question in QUESTIONS])
    lm = UnmaskLM("tiny")
    first = lm.generate_until(ask)
    assert lm.generate_until(ask[::-1]) == first[::-1]
    assert lm.generate_until(ask[2:]) == first[2:]
    assert UnmaskLM("tiny", seed=1).generate_until(ask) != first
    repeats = lm.generate_until([ask[0]] * 4)
    assert repeats[0] == first[0] and len(set(repeats)) > 1


def test_a_stop_string_ends_the_answer() -> None:
    assert before("12 34#5", ["#", " 3"]) == "12"
    assert before("12", ["", "#"]) == "12"


def test_what_the_person_sets_comes_before_what_the_task_says() -> None:
    task = {"until": "Q:", "max_gen_toks": 64, "do_sample": True, "temperature": 0.5, "top_p": 0.9}
    decoding, until = response_settings(task, {})
    assert until == ["Q:"]
    assert (decoding.length, decoding.temperature, decoding.top_p) == (64, 0.5, 0.9)
    decoding, _ = response_settings(task, {"length": 128, "temperature": 0.2, "order": "dynamic", "block": 32})
    assert (decoding.length, decoding.temperature, decoding.block) == (128, 0.2, 32)
    assert response_settings({}, {})[0].temperature == 0
    assert response_settings({"temperature": 1, "do_sample": False}, {})[0].temperature == 0


def test_wrong_settings_are_one_line() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"oder": "static"}, "model_args: oder is unknown; did you mean order?"),
        ({"batch_size": 8}, "batch_size=8: rows share batches"),
        ({"mc_samples": 0}, "mc_samples=0"),
        ({"batch_tokens": 0}, "batch_tokens=0: Input should be greater"),
    ]
    for options, says in wrong:
        with pytest.raises(UnmaskError, match=says.replace("?", r"\?")):
            UnmaskLM("tiny", **options)
    for task, given, says in [
        ({"num_beams": 2}, {}, "gen_kwargs: num_beams is unknown"),
        ({"max_gen_toks": 100}, {"order": "static", "block": 32}, "block=32 does not divide length=100"),
    ]:
        with pytest.raises(UnmaskError, match=says):
            response_settings(task, given)


def test_a_chat_template_is_used_when_there_is_one(lm: UnmaskLM) -> None:
    with pytest.raises(UnmaskError, match="no chat template"):
        lm.chat_template(True)
    chat = UnmaskLM("tiny")
    chat.tokenizer.chat_template = (
        "{% for m in messages %}({{ m['content'] }}){% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    assert chat.apply_chat_template([{"role": "user", "content": "1+2"}]) == "(1+2)="
    assert chat.chat_template(True) == chat.tokenizer.chat_template


def test_the_harness_keeps_its_own_models() -> None:
    assert get_model("unmask") is UnmaskLM
    assert {"hf", "vllm", "unmask"} <= set(model_registry.keys())


def test_requests_are_batched_with_others_of_their_length(lm: UnmaskLM) -> None:
    pairs = [([1, 2], [3]), ([1], [4, 5]), ([1], []), ([1, 2], [6])]
    chunks = lm._chunks(pairs)
    assert sorted(index for chunk in chunks for index in chunk) == [0, 1, 3]
    assert all(len(pairs[a][1]) == len(pairs[b][1]) for chunk in chunks for a, b in pairwise(chunk))
