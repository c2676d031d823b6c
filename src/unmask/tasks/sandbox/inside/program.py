"""The job that is a whole program: it reads and prints, and ends as it would under an interpreter of its own."""

import atexit
import gc
import os
import sys
import types
from typing import Any


def run(output: int, program: str, stdin: str) -> None:
    """A program, from its first line to what an interpreter does at its exit, in that order."""
    with open(os.memfd_create("input"), "wb+", buffering=0) as file:
        file.write(stdin.encode("utf-8", "surrogatepass"))
        file.seek(0)
        os.dup2(file.fileno(), 0)
    os.dup2(output, 1)
    os.close(output)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        exec(compile(program, "program", "exec"), vars(module))
    finally:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()  # waits for the program's threads
        atexit._run_exitfuncs()
        flush(sys.stdout)
        vars(module).clear()
        gc.collect()  # closes the files that it left open
        flush(sys.__stdout__)


def flush(stream: Any) -> None:
    """Write out what a stream holds, where there is one and it is open."""
    if stream is not None and not getattr(stream, "closed", False):
        stream.flush()
