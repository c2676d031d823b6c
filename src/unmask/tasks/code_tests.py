"""Unit tests as data: a problem's tests, in the forms they are published in, split into steps that pass or fail alone.

Only tests are parsed here, never a response, and nothing is executed.
"""

import ast
import builtins
import collections
import functools
import itertools
import math
import sys
import threading
import warnings
from collections.abc import Sequence

from unmask.errors import UnmaskError
from unmask.tasks.sandbox import Examination, Step

HELPERS = {name for module in (math, collections, functools, itertools) for name in dir(module)}
"""Names that a test may use without importing them, as its authors' programs do."""

_filters = threading.Lock()


@functools.lru_cache(maxsize=4096)  # a problem is answered many times
def assertions(tests: tuple[str, ...], *, setup: str = "", prelude: str = "", entry_point: str = "") -> Examination:
    """Assertions, run one by one.

    Args:
        tests: statements; each assertion outside of functions and loops is a test, and so is a loop with assertions.
            An assertion without a name, `assert True`, tests nothing and is none. A function `check(candidate)` is
            opened, and its body taken in its place.
        setup: statements before the tests that may use the candidate's names, e.g. `root = Node(1)`.
        prelude: code that the tests may rely on, e.g. the prompt of a problem with its helper functions.
        entry_point: the candidate's function; without, it is found in the tests.

    Raises:
        UnmaskError: the tests are not Python, or test nothing.
    """
    trees = [_parse(test) for test in tests]
    body = [_step(node, False) for node in _parse(setup).body]
    for tree in trees:
        body += [step for node in tree.body for step in _opened(node)]
    if not any(step.is_test for step in body):
        raise UnmaskError(f"the tests hold no assertion: {str(list(tests))[:80]}")
    names = [entry_point] if entry_point else _names(_parse(f"{prelude}\n{setup}"), trees)
    imports = _missing_imports([_parse(setup), *trees], names)
    return Examination(prelude=f"{prelude}\n{imports}", names=tuple(names), steps=tuple(body))


def _parse(source: str) -> ast.Module:
    try:
        # what Python thinks of a data set's style is of no interest; the filters are shared by all threads
        with _filters, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise UnmaskError(f"a test is not Python: {source.strip()[:80]!r}") from error


@functools.lru_cache(maxsize=4096)
def completed(beginning: str) -> str:
    """The beginning of a function, as Python that can be run; nothing where it is no Python at all."""
    for ending in ("\n", "\n    pass\n"):
        try:
            _parse(beginning.rstrip() + ending)
            return beginning.rstrip() + ending
        except UnmaskError:
            continue
    return ""


def _step(node: ast.stmt, is_test: bool) -> Step:
    return Step(ast.unparse(node), is_test)


def _opened(node: ast.stmt) -> list[Step]:
    """The steps in a statement of a test file."""
    if isinstance(node, ast.FunctionDef) and node.name == "check":
        alone = not any(isinstance(inner, ast.Return | ast.Nonlocal | ast.Global | ast.Yield) for inner in _own(node))
        if alone and [argument.arg for argument in node.args.args] == ["candidate"]:
            return [step for inner in node.body for step in _opened(inner)]
        return [_step(node, False), Step("check(candidate)", True)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "check":
        return []  # what `check` holds is taken already
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [_step(node, False)]
    if isinstance(node, ast.Assert):
        return [_step(node, any(isinstance(inner, ast.Name) for inner in ast.walk(node.test)))]
    return [_step(node, any(isinstance(inner, ast.Assert) for inner in _own(node)))]


def _own(node: ast.AST) -> list[ast.AST]:
    """Nodes below one, but not those inside functions in it; the node itself, too."""
    found = [node]
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            found += _own(child)
    return found


def _names(setup: ast.Module, trees: Sequence[ast.Module]) -> list[str]:
    """The candidate's names: what the tests call or use and nobody defines.

    A candidate must not choose what `set` or `isclose` means in a test; so a name of Python's own, or of the usual
    helpers, is the candidate's only where the tests call nothing else: `assert sum(10, 15) == 6`.
    """
    everything = ast.Module([statement for tree in (setup, *trees) for statement in tree.body], [])
    not_theirs = _bound(everything) | _modules(everything)
    used = [node.id for node in ast.walk(everything) if isinstance(node, ast.Name) and node.id not in not_theirs]
    own = [name for name in dict.fromkeys(used) if not hasattr(builtins, name)]
    asked = [name for name in own if name not in HELPERS] or own
    if not asked:
        asked = list(
            dict.fromkeys(
                name
                for node in ast.walk(everything)
                if isinstance(node, ast.Assert) and (name := _innermost(node.test)) is not None
            )
        )[:1]
    if not asked:
        raise UnmaskError(f"the tests call no function: {ast.unparse(everything)[:80]!r}")
    return asked


def _innermost(test: ast.expr) -> str | None:
    """The function called first in the left side of a comparison."""
    side = test.left if isinstance(test, ast.Compare) else test
    calls = [node.func.id for node in ast.walk(side) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return calls[-1] if calls else None


def _modules(tree: ast.AST) -> set[str]:
    """Modules of the standard library that code takes something from by a dot."""
    attributes = [node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {name.id for name in attributes if isinstance(name, ast.Name) and name.id in sys.stdlib_module_names}


def _bound(tree: ast.AST) -> set[str]:
    """Names that code gives a meaning to, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
    return found


def _missing_imports(trees: Sequence[ast.Module], names: Sequence[str]) -> str:
    """Imports of what the tests use of the standard library without importing it."""
    everything = ast.Module([statement for tree in trees for statement in tree.body], [])
    bound = {*_bound(everything), *names}
    used = {node.id for node in ast.walk(everything) if isinstance(node, ast.Name)} - bound
    lines = [f"import {name}" for name in sorted(_modules(everything) - bound)]
    for module in (math, collections, functools, itertools):
        lines += [
            f"from {module.__name__} import {name}"
            for name in sorted(used & set(dir(module)))
            if not name.startswith("__") and not hasattr(builtins, name)
        ]
    return "\n".join(lines)
