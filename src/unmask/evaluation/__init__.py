"""How good a model is at a task: decode the evaluation examples, judge them, count."""

from unmask.evaluation.evaluate import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
