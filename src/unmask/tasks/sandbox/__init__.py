"""Untrusted code: run it, and judge it, without trusting anything that it says about itself.

`sandbox.py` runs jobs and holds them to limits, `bubblewrap.py` starts the sandbox, `examination.py` judges a candidate
program by tests, `inside/` is the code on the other side of the wall.

How a verdict comes about: the tests run in one sandboxed process, the candidate in another. What the tests call is
called over a socket; arguments and results are plain values, rebuilt on either side. The candidate's process holds
neither the tests nor the values they expect, and it has no way to say "passed": all it can do is return values. What
its function returns is compared with what is expected where none of its code runs. When a test needs more of an object
than its items, attributes, methods, length or truth, e.g. its order or its sum with a number, the test fails: whoever
answered that would decide the verdict. A program that is lost stays lost, whatever the test catches.

What holds in `bubblewrap`:

- No network, no file of the host but the system's own, read-only; no installed packages; no environment; no keys of the
  host's; an unprivileged user even for root.
- Each job has new user, process, mount and IPC namespaces, a fresh scratch folder and no rights in any of them. It
  cannot see, signal, trace or limit its server or another job, and when it ends the kernel ends all its processes
  with it. What it leaves behind (files, shared memory, keys) goes with its namespaces. So a job cannot change a later
  one; a server that is lost all the same (e.g. to the kernel's lack of memory) is replaced, and its jobs are tried once
  more, as are jobs that could not begin. Over what is lost twice there is no verdict: the response gets the smallest
  reward and counts in `reward/errors`.
- Wall time, processor time, memory, processes, file size, scratch and output are limited. Where the machine runs out of
  memory all the same, programs end first.
- The order of sets of texts is the same in all processes and on all days, and so is the verdict on a program that
  depends on it.

What does not: the memory limit is one for each process, so a job may use it as many times as it may have processes;
jobs at work at the same time share a loopback network and could talk; how long something takes can be seen; a hole in
the kernel is a hole in the sandbox. A program that has learned the tests by heart passes them. What a call does to its
arguments is seen by the test in lists, dicts, sets and deques that are arguments themselves, with all that is in them;
that two of them hold the same list is not kept. `unsafe` keeps the limits, the separate process for the verdict, and
that nothing is left of a job, and nothing else of this list: there, a program may end its server and other jobs.
"""

from unmask.tasks.sandbox.bubblewrap import Kind
from unmask.tasks.sandbox.examination import Examination, Step, examine
from unmask.tasks.sandbox.sandbox import Limits, Outcome, Sandbox, SandboxLostError, shared_sandbox

__all__ = [
    "Examination",
    "Kind",
    "Limits",
    "Outcome",
    "Sandbox",
    "SandboxLostError",
    "Step",
    "examine",
    "shared_sandbox",
]
