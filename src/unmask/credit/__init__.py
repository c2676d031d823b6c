"""Credit: from terminal rewards to an advantage for every token.

`group.py` compares responses that started from the same state, `segment.py` follows one response through the states it
passed. Tensors in, tensors out; who starts where is the algorithm's business.
"""

from unmask.credit.group import (
    GroupStatistics,
    centered_advantage,
    floored_advantage,
    group_advantage,
    group_statistics,
    leave_one_out_advantage,
    significant,
)
from unmask.credit.segment import SegmentCredit, segment_credit

__all__ = [
    "GroupStatistics",
    "SegmentCredit",
    "centered_advantage",
    "floored_advantage",
    "group_advantage",
    "group_statistics",
    "leave_one_out_advantage",
    "segment_credit",
    "significant",
]
