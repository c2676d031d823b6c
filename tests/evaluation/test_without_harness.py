import subprocess
import sys

PROGRAM = """
import runpy, sys
sys.modules["lm_eval"] = None  # as if it were not installed
try:
    import unmask.evaluation.harness
except ImportError as error:
    print(error)
"""


def test_without_lm_eval_one_line_says_how_to_install_it() -> None:
    says = "lm-evaluation-harness is needed: pip install 'unmask[harness]'"
    program = PROGRAM + "runpy.run_module('unmask.evaluation.harness', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith(says)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"unmask: {says}")
