"""How good a model is at a task: decode the evaluation examples, judge them, count.

`evaluate.py` is one model on one task; `grid.py` several, as the papers' tables, in the settings of `settings.py`
and on the sets of `benchmarks.py`.
`responses.py` keeps responses on disk as they are judged; `statistics.py` holds pass@k and the interval of a share.
`score.py` judges responses that exist already. `sampling.py` is what `evaluate.py` and `filtering.py` share: the latter
leaves out of a training set what a model cannot learn from.
"""

from unmask.evaluation.benchmarks import BENCHMARKS
from unmask.evaluation.evaluate import Evaluation, evaluate
from unmask.evaluation.filtering import Filtered, filter_examples
from unmask.evaluation.grid import Cell, PaperTable, Result, details, evaluate_grid, markdown, paper_tables, plan
from unmask.evaluation.responses import Judged, ResponseFile
from unmask.evaluation.sampling import Answers, Watcher, sample_and_judge
from unmask.evaluation.score import Scores, score_file
from unmask.evaluation.settings import SETTINGS, setting
from unmask.evaluation.statistics import pass_at_k, wilson

__all__ = [
    "BENCHMARKS",
    "SETTINGS",
    "Answers",
    "Cell",
    "Evaluation",
    "Filtered",
    "Judged",
    "PaperTable",
    "ResponseFile",
    "Result",
    "Scores",
    "Watcher",
    "details",
    "evaluate",
    "evaluate_grid",
    "filter_examples",
    "markdown",
    "paper_tables",
    "pass_at_k",
    "plan",
    "sample_and_judge",
    "score_file",
    "setting",
    "wilson",
]
