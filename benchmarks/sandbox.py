"""Programs a second: a warm fork server in one sandbox, against a cold sandbox for every program.

The cold contestant is what a reward function does that starts `bwrap ... python -c PROGRAM` each time, with the same
interpreter, view of the system and number of threads. Both print what the program prints; that is checked.

    python benchmarks/sandbox.py [--programs 200] [--repeats 3] [--json FILE]
"""

import argparse
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import medians, report

from unmask.tasks import Code
from unmask.tasks.sandbox import Sandbox
from unmask.tasks.sandbox.bubblewrap import NOBODY, view

PROGRAM = "import math\nprint(math.factorial(20))"
PRINTED = "2432902008176640000\n"
PROBLEM = {"tests": ["assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4"]}
RESPONSE = "```python\ndef f(x):\n    return x + 1\n```"


def cold(index: int) -> str:
    """One program in a sandbox of its own."""
    identity: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    command = ["bwrap", *view("/usr/bin/python3"), "--", "/usr/bin/python3", "-I", "-S", "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", **identity).stdout


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    programs = range(arguments.programs)
    task = Code()
    with Sandbox() as sandbox, ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as threads:

        def warm(index: int) -> str:
            return sandbox.run(PROGRAM).output

        def run(contestant: Any) -> None:
            assert set(threads.map(contestant, programs)) == {PRINTED}

        def judge() -> None:
            judgements = task.judge_all([PROBLEM] * len(programs), [RESPONSE] * len(programs))
            assert {judgement.reward for judgement in judgements} == {1.0}

        seconds = medians(arguments.repeats, warm=lambda: run(warm), cold=lambda: run(cold), judged=judge)
        task.sandbox.close()
    result = {
        "programs_per_second": len(programs) / seconds["warm"],
        "cold_programs_per_second": len(programs) / seconds["cold"],
        "sandbox": seconds["cold"] / seconds["warm"],
        "judged_responses_per_second": len(programs) / seconds["judged"],
    }
    report(result, arguments.json)


if __name__ == "__main__":
    main()
