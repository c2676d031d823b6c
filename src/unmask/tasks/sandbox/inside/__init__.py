"""What runs inside the sandbox. Standard library only: the interpreter in there has no other packages.

`server.py` forks a confined process for every job; `candidate.py` and `examiner.py` are the two kinds of job that
answer and ask calls over a socket, `plain.py` is the only form in which values pass between them; `program.py` is the
kind of job that reads and prints.
"""
