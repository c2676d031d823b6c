"""Credit: from terminal rewards to an advantage for every token.

`group.py` compares responses that started from the same state, `segment.py` follows one response through the states it
passed. Tensors in, tensors out; who starts where is the algorithm's business.
"""

from unmask.credit.group import GroupStatistics, group_advantage, group_statistics
from unmask.credit.segment import SegmentCredit, segment_credit

__all__ = ["GroupStatistics", "SegmentCredit", "group_advantage", "group_statistics", "segment_credit"]
