"""How good a model is at a task: decode the evaluation examples, judge them, count.

`evaluate.py` is one model on one task; `grid.py` several, as the papers' tables, in the settings of `settings.py`
and on the sets of `benchmarks.py`.
`responses.py` keeps responses on disk as they are judged; `statistics.py` holds pass@k and the interval of a share.
`score.py` judges responses that exist already.
"""

from unmask.evaluation.benchmarks import BENCHMARKS
from unmask.evaluation.evaluate import Evaluation, evaluate
from unmask.evaluation.grid import Cell, PaperTable, Result, details, evaluate_grid, markdown, paper_tables, plan
from unmask.evaluation.responses import Judged, ResponseFile
from unmask.evaluation.score import Scores, score_file
from unmask.evaluation.settings import SETTINGS, setting
from unmask.evaluation.statistics import pass_at_k, wilson

__all__ = [
    "BENCHMARKS",
    "SETTINGS",
    "Cell",
    "Evaluation",
    "Judged",
    "PaperTable",
    "ResponseFile",
    "Result",
    "Scores",
    "details",
    "evaluate",
    "evaluate_grid",
    "markdown",
    "paper_tables",
    "pass_at_k",
    "plan",
    "score_file",
    "setting",
    "wilson",
]
