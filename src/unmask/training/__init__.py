"""Training: the loop and what a run needs around it.

`trainer.py` is the loop of every RL algorithm, `sft.py` supervised training, `recipe.py` puts all
settings together, `optimizer.py`, `checkpoint.py`, `metrics.py` and `distributed.py` are what their names say.
Algorithms plug in from `unmask.algorithms`; nothing here asks which one it is.
"""
