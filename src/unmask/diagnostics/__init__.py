"""What the papers measured about credit and tokens, on a model and a task of the reader's choice. Nothing is trained.

`trees.py` gathers fork trees, `mismatch.py` says where one advantage for a whole response misleads, `monte_carlo.py`
how many continuations a value needs, `tokens.py` how sure the model is of what it reveals; `diagnosis.py` asks all of
them, `report.py` and `figures.py` show the answers. The measures are functions of numbers alone, whatever sampled them.
"""

from unmask.diagnostics.diagnosis import Diagnosis, check, check_sampling, diagnose, paper_windows
from unmask.diagnostics.report import describe, report_folder, tables, write_report

__all__ = [
    "Diagnosis",
    "check",
    "check_sampling",
    "describe",
    "diagnose",
    "paper_windows",
    "report_folder",
    "tables",
    "write_report",
]
