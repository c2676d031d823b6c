"""The house rules that a machine can check."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "unmask"

FLOORS = [
    "errors",
    "randomness",
    "writing",
    "models",
    "decoding",
    "tasks",
    "credit",
    "replay",
    "objectives",
    "algorithms",
    "evaluation",
    "training",
    "drawing",
    "diagnostics",
    "cost",
]
"""From the ground up; a package may import those before it."""

ABOVE = {"config", "runs", "comparison", "cli", "console", "demo", "doctor", "reference", "__main__", "__init__"}
"""Modules at the top of the package, which put everything together."""


def imports_of(file: Path) -> set[str]:
    """Packages of unmask that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "unmask":
            names = [f"unmask.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("unmask.")}
    return found


def test_imports_run_one_way() -> None:
    for file in SOURCE.rglob("*.py"):
        package = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        if package in ABOVE:
            continue
        allowed = {*FLOORS[: FLOORS.index(package) + 1]}
        wrong = imports_of(file) - allowed
        assert not wrong, f"{file.relative_to(SOURCE)} imports {wrong}"


def test_every_module_says_what_it_is_for() -> None:
    for file in SOURCE.rglob("*.py"):
        if file.name != "__main__.py":
            assert ast.get_docstring(ast.parse(file.read_text())), file


def test_shared_code_never_asks_which_algorithm_runs() -> None:
    names = {path.stem for path in (SOURCE / "algorithms").glob("*.py")} - {
        "__init__",
        "algorithm",
        "explore",
        "thinning",
    }
    for package in ("decoding", "credit", "replay", "objectives", "training", "evaluation"):
        for file in (SOURCE / package).glob("*.py"):
            if file == SOURCE / "evaluation" / "settings.py":  # papers' settings bear the names of their algorithms
                continue
            literals = {node.value for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant)}
            assert not literals & names, file
