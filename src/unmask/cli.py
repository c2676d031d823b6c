"""The `unmask` command. Heavy imports wait until a command needs them."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

app = typer.Typer(
    name="unmask",
    help="Reinforcement learning for diffusion language models.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

DECODING_OPTIONS = (
    *("order", "steps", "threshold", "temperature", "measure"),
    *("sampler", "top_k", "top_p", "guidance", "cache", "horizon"),
)
"""Options of commands that are fields of `Decoding` under the same name."""

Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys to change.")]


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="A YAML file or a shipped recipe, e.g. tiny/forkgrpo.")] = None,
    overrides: Overrides = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue this run from its last checkpoint.")
    ] = None,
) -> None:
    """Train a model with reinforcement learning."""
    from unmask import runs
    from unmask.console import TrainingView
    from unmask.errors import UnmaskError

    changes = list(overrides or [])
    with _interruptible():
        if resume is not None:
            changes = [recipe, *changes] if recipe is not None else changes
            with TrainingView(f"resuming {resume}") as view:
                result = runs.resume(resume, changes, listeners=[view])
        elif recipe is None:
            raise UnmaskError("train: name a recipe (see `unmask recipes`) or --resume RUN")
        else:
            with TrainingView(recipe) as view:
                result = runs.train(recipe, changes, listeners=[view])
        view.finish(result)


@app.command()
def compare(
    recipes: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE... [KEY=VALUE]...", help="What to compare; keys to change in all."),
    ],
    seeds: Annotated[int, typer.Option(help="Runs of every recipe, with the seeds 0, 1, ...")] = 3,
    tokens: Annotated[int | None, typer.Option(help="End a run when it has generated as many tokens.")] = None,
    minutes: Annotated[float | None, typer.Option(help="End a run when it has trained as long.")] = None,
    output: Annotated[str, typer.Option(metavar="FOLDER", help="Where everything is kept.")] = "runs/comparison",
) -> None:
    """Compare recipes over several seeds, at equal tokens, equal minutes, or their own steps."""
    from unmask import comparison
    from unmask.console import ComparisonView

    changes = [argument for argument in recipes if "=" in argument]
    names = [argument for argument in recipes if "=" not in argument]
    with _interruptible(), ComparisonView() as view:
        result = comparison.compare(
            names, seeds, tokens=tokens, minutes=minutes, output=output, overrides=changes, watcher=view
        )
        view.finish(result)
    if result.failures:
        raise typer.Exit(1)


@app.command()
def sft(
    recipe: Annotated[str, typer.Argument(help="A YAML file or a shipped recipe, e.g. tiny/sft.")],
    overrides: Overrides = None,
) -> None:
    """Masked-diffusion supervised fine-tuning, or training of a new model. The model is saved at the end."""
    from unmask import runs
    from unmask.console import TrainingView

    with _interruptible(), TrainingView(recipe) as view:
        result = runs.supervise(recipe, list(overrides or []), listeners=[view])
        view.finish(result)


Length = Annotated[int | None, typer.Option("--gen-length", min=1, help="Response length in tokens.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Decoding steps; one token a step when left out.")]
Block = Annotated[int | None, typer.Option(min=1, help="Tokens in a block; 32 when left out.")]
Order = Annotated[str, typer.Option(help="left_to_right, static, dynamic or random.")]
Threshold = Annotated[float | None, typer.Option(help="Confidence for the dynamic order; 0.9 when left out.")]
Temperature = Annotated[float, typer.Option(help="0 takes the most likely token.")]
Measure = Annotated[str | None, typer.Option(help="Confidence: probability (default), margin or negative_entropy.")]
Sampler = Annotated[str | None, typer.Option(help="categorical (default) or gumbel.")]
TopK = Annotated[int | None, typer.Option("--top-k", help="Draw from the k most likely tokens.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="Draw from the most likely tokens that hold this share.")]
Guidance = Annotated[float | None, typer.Option(help="Scale of classifier-free guidance; off when left out.")]
Cache = Annotated[
    str | None, typer.Option(help="Block-wise caching, an approximation: none (default), prefix or dual.")
]
Horizon = Annotated[int | None, typer.Option(help="Tokens after the block that a cached step still sees.")]


@app.command("eval")
def evaluate_models(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Hub names, folders, checkpoints, or `tiny`.")
    ],
    tasks: Annotated[
        list[str],
        typer.Option("--task", help="A task, math500, amc23, humaneval, mbpp, or module:Class; repeatable."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", help="A paper's: forkgrpo, rldf-dynamic or rldf-static; repeatable."),
    ] = None,
    gen_length: Length = None,
    steps: Steps = None,
    block: Block = None,
    order: Annotated[str | None, typer.Option(help="left_to_right, static (default), dynamic or random.")] = None,
    threshold: Threshold = None,
    temperature: Annotated[float | None, typer.Option(help="0 (default) takes the most likely token.")] = None,
    measure: Measure = None,
    sampler: Sampler = None,
    top_k: TopK = None,
    top_p: TopP = None,
    guidance: Guidance = None,
    cache: Cache = None,
    horizon: Horizon = None,
    examples: Annotated[int | None, typer.Option(min=1, help="How many examples; all when left out.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Responses to each example, for pass@k.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|FILE.jsonl",
            help="Keep every response and verdict as it is judged; the same command goes on from there.",
        ),
    ] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the tables here as Markdown.")] = None,
) -> None:
    """Accuracy of models on tasks' evaluation examples."""
    arguments = locals()
    from unmask import evaluation
    from unmask.console import EvaluationView
    from unmask.errors import UnmaskError
    from unmask.writing import replace_text

    options = _options(arguments)

    def decodings(task: Any, has_template: bool) -> list[Any]:
        if not settings:
            length = gen_length or (256 if has_template else task.response_length)
            chosen = {**options, "order": order or "static", "temperature": temperature or 0.0}
            decoding = _decoding(length, block, chosen)
            return [(f"{decoding.order}, temperature {decoding.temperature:g}", decoding)]
        given = {"length": gen_length, "block": block, **options}
        given = {key: value for key, value in given.items() if value is not None}
        return [(name, decoding) for name in settings for decoding in evaluation.setting(name, given)]

    if markdown is not None and (markdown.is_dir() or not markdown.absolute().parent.is_dir()):
        raise UnmaskError(f"--markdown {markdown}: name a file in a folder that exists")
    with _interruptible("the same command goes on from here" if output else ""), EvaluationView() as view:
        cells = evaluation.plan(models, tasks, decodings, samples=samples, seed=seed, output=output)
        results = evaluation.evaluate_grid(cells, examples=examples, samples=samples, seed=seed, watcher=view)
    page = markdown
    if page is None and output is not None and len(cells) > 1:
        page = output / "evaluation.md"
    view.finish(results, output)
    if page is not None:
        try:
            replace_text(page, evaluation.markdown(results))
        except OSError as error:
            raise UnmaskError(f"{page}: cannot be written: {error.strerror}") from error
        view.say(f"tables in {page}")


@app.command("filter")
def filter_data(
    model: Annotated[str, typer.Argument(help="Hub name, folder, checkpoint, or `tiny`.")],
    task: Annotated[str, typer.Option(help="Task whose training examples are filtered.")],
    output: Annotated[
        Path, typer.Option(metavar="FILE.jsonl", help="Where kept examples go; responses are kept beside it.")
    ],
    data: Annotated[
        str | None, typer.Option(help="Training set: a file, or a hub name; the task's own when left out.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of a training set from the hub.")] = None,
    examples: Annotated[int | None, typer.Option(min=1, help="How many examples; all when left out.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Responses to each example; one must be right.")] = 16,
    at_most: Annotated[
        float, typer.Option("--at-most", min=0, max=1, help="Largest share of right responses that is kept.")
    ] = 1.0,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", min=1, help="Most tokens of prompt and response together.")
    ] = None,
    gen_length: Length = None,
    steps: Steps = None,
    block: Block = None,
    order: Order = "left_to_right",
    threshold: Threshold = None,
    temperature: Temperature = 1.0,
    measure: Measure = None,
    sampler: Sampler = None,
    top_k: TopK = None,
    top_p: TopP = None,
    guidance: Guidance = None,
    cache: Cache = None,
    horizon: Horizon = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
) -> None:
    """The training examples that a model can learn from: short enough, and right at least once."""
    arguments = locals()
    from unmask import evaluation
    from unmask.console import EvaluationView, filter_report

    options = _options(arguments)

    def decoding(task: Any, has_template: bool) -> Any:
        return _decoding(gen_length or (256 if has_template else task.response_length), block, options)

    with _interruptible("the same command goes on from here"), EvaluationView() as view:
        result = evaluation.filter_examples(
            model,
            task,
            decoding,
            data=data,
            split=split,
            examples=examples,
            samples=samples,
            at_most=at_most,
            max_tokens=max_tokens,
            seed=seed,
            output=output,
            watcher=view,
        )
    filter_report(result)


@app.command("diagnose")
def diagnose_model(
    model: Annotated[str, typer.Argument(help="Hub name, folder, checkpoint, or `tiny`.")],
    task: Annotated[str, typer.Option(help="Task to answer: a name, or module:Class for one of your own.")],
    prompts: Annotated[int, typer.Option(min=1, help="Examples that fork trees are sampled for.")] = 64,
    group: Annotated[int, typer.Option(min=2, help="Responses to a prompt, and continuations of each fork.")] = 8,
    held_out: Annotated[
        int, typer.Option(min=1, help="Further examples, whose states get 32 continuations each.")
    ] = 16,
    windows: Annotated[
        str | None,
        typer.Option(help="Reveal steps to look for forks in, e.g. 1-4,5-8,9-12; the paper's, scaled, when left out."),
    ] = None,
    gen_length: Length = None,
    steps: Steps = None,
    block: Block = None,
    order: Order = "left_to_right",
    threshold: Threshold = None,
    temperature: Temperature = 1.0,
    measure: Measure = None,
    sampler: Sampler = None,
    top_k: TopK = None,
    top_p: TopP = None,
    cache: Cache = None,
    horizon: Horizon = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    output: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the report here: Markdown, JSON and pictures.")
    ] = None,
) -> None:
    """The papers' diagnostics: what response-level credit misses, how stable values are, how sure tokens are."""
    arguments = locals()
    from contextlib import nullcontext

    from unmask.console import DiagnosisView
    from unmask.diagnostics import check, check_sampling, diagnose, paper_windows, report_folder, write_report

    given = None if windows is None else _windows(windows)
    examples = prompts + held_out
    options = _options(arguments)

    denoiser, tokenizer, chosen, decoding = _prepared(
        model, task, gen_length, block, options, lambda chosen, decoding: check_sampling(decoding, chosen, examples)
    )
    settings = _fork_settings(group, paper_windows(decoding.length) if given is None else given)
    check(settings, decoding, chosen, examples)
    with _interruptible(), nullcontext() if output is None else report_folder(output) as folder:
        with DiagnosisView(f"{model} on {task}", examples) as view:
            result = diagnose(
                denoiser,
                tokenizer,
                chosen,
                settings,
                decoding,
                prompts=prompts,
                held_out=held_out,
                seed=seed,
                advance=view.advance,
            )
        if folder is not None:
            write_report(result, folder, f"{model} on {task}", shlex.join(["unmask", *sys.argv[1:]]))
    view.finish(result, output)


@app.command()
def sample(
    model: Annotated[str, typer.Argument(help="Hub name, folder, checkpoint, or `tiny`.")],
    prompt: Annotated[str | None, typer.Argument(help="What to answer; an example of the task when left out.")] = None,
    task: Annotated[str, typer.Option(help="Task that the example is taken from.")] = "sudoku",
    trace: Annotated[bool, typer.Option("--trace", help="Show the response being revealed, step by step.")] = False,
    gen_length: Length = None,
    steps: Steps = None,
    block: Block = None,
    order: Order = "left_to_right",
    threshold: Threshold = None,
    temperature: Temperature = 1.0,
    measure: Measure = None,
    sampler: Sampler = None,
    top_k: TopK = None,
    top_p: TopP = None,
    guidance: Guidance = None,
    cache: Cache = None,
    horizon: Horizon = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws and of the example.")] = 0,
) -> None:
    """One answer of a model."""
    arguments = locals()
    from unmask.console import show_answer

    options = _options(arguments)
    denoiser, tokenizer, chosen, decoding = _prepared(model, task, gen_length, block, options)
    show_answer(denoiser, tokenizer, chosen, prompt, decoding, seed=seed, trace=trace)


@app.command()
def score(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Rows of a task's fields and `response`.")],
    task: Annotated[
        str | None, typer.Option(help="Task of all rows; when left out, each row names its own in `kind`.")
    ] = None,
) -> None:
    """Judge outputs that exist; rewards are written beside the file."""
    from unmask.console import score_report
    from unmask.evaluation import score_file

    scores = score_file(file, task)
    score_report(file, scores)
    if scores.broken:
        raise typer.Exit(1)


@app.command()
def recipes() -> None:
    """The shipped recipes, one line each."""
    from unmask.config import shipped_recipes

    shipped = shipped_recipes()
    width = max(map(len, shipped))
    for name, path in shipped.items():
        first = path.read_text().splitlines()[0].lstrip("# ")
        print(f"{name:<{width}}  {first}")


@app.command()
def doctor() -> None:
    """What is here: versions, the GPU, the sandbox for code."""
    from unmask.doctor import findings

    for name, finding in findings():
        print(f"{name:<14} {finding}")


def _prepared(
    model: str,
    task: str,
    length: int | None,
    block: int | None,
    options: dict[str, Any],
    check: Callable[[Any, Any], None] = lambda task, decoding: None,
) -> Any:
    """Denoiser, tokenizer, task and decoding of a command; cheap mistakes are found before the model is loaded.

    Args:
        check: told the task and a decoding that is right but for its length, which may depend on the model.
    """
    from unmask.models import load
    from unmask.tasks import build_task

    chosen = build_task(task)
    check(chosen, _decoding(length or chosen.response_length, block, options))
    denoiser, tokenizer = load(model)
    length = length or (256 if tokenizer.chat_template else chosen.response_length)
    return denoiser, tokenizer, chosen, _decoding(length, block, options)


def _options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a command's arguments that say how responses are decoded, besides length and block."""
    return {name: arguments[name] for name in DECODING_OPTIONS if name in arguments}


def _decoding(length: int, block: int | None, options: dict[str, Any]) -> Any:
    """Decoding from command-line options; the block is the papers' 32 tokens where the response is longer."""
    from pydantic import ValidationError

    from unmask.config import explain
    from unmask.decoding import Decoding
    from unmask.errors import UnmaskError

    if options["order"] != "left_to_right" and block is None:
        block = min(32, length)
    if options["threshold"] not in (None, 0.9) and options["order"] != "dynamic":
        raise UnmaskError(f"threshold={options['threshold']}: only the dynamic order has one; leave it out")
    given = {key: value for key, value in options.items() if value is not None}
    try:
        return Decoding(length=length, block=block, **given)
    except ValidationError as error:
        raise UnmaskError(explain(error.errors()[0], Decoding)) from error


def _windows(text: str) -> tuple[tuple[int, int], ...]:
    """`1-4,5-8` as pairs."""
    from unmask.errors import UnmaskError

    try:
        pairs = [part.split("-") for part in text.split(",")]
        return tuple((int(first), int(last)) for first, last in pairs)
    except ValueError:
        raise UnmaskError(f"--windows {text}: write first-last steps with commas between, e.g. 1-4,5-8,9-12") from None


def _fork_settings(group: int, windows: tuple[tuple[int, int], ...]) -> Any:
    from pydantic import ValidationError

    from unmask.algorithms import ForkGRPOSettings
    from unmask.config import explain
    from unmask.errors import UnmaskError

    try:
        return ForkGRPOSettings(group_size=group, windows=windows)
    except ValidationError as error:
        raise UnmaskError(explain(error.errors()[0], ForkGRPOSettings)) from error


@contextmanager
def _interruptible(advice: str = "") -> Iterator[None]:
    """Ctrl-C says how to go on; typer itself would end in silence.

    Args:
        advice: how, where the interrupt itself does not know.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        says = interrupt.args[0] if interrupt.args else "; ".join(filter(None, ("interrupted", advice)))
        print(f"unmask: {says}", file=sys.stderr)
        raise typer.Exit(130) from None


def quietly(command: Callable[[], Any]) -> int:
    """Run a command and return its exit code; a mistake in the input is one line on stderr and exit code 2."""
    from unmask.errors import UnmaskError

    try:
        return command() or 0
    except UnmaskError as error:
        print(f"unmask: {error}", file=sys.stderr)
    except Exception as error:
        # typer's own mistakes (an unknown command or option), whose class it does not export
        if not hasattr(error, "format_message"):
            raise
        print(f"unmask: {' '.join(error.format_message().split())}", file=sys.stderr)
    return 2


def main() -> None:
    """The `unmask` command."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    sys.exit(quietly(lambda: app(standalone_mode=False)))


if __name__ == "__main__":
    main()
