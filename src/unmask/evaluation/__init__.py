"""How good a model is at a task: decode the evaluation examples, judge them, count."""

from unmask.evaluation.evaluate import Evaluation, evaluate
from unmask.evaluation.score import Scores, score_file

__all__ = ["Evaluation", "Scores", "evaluate", "score_file"]
