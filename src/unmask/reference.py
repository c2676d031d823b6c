"""`make docs`: docs/recipes.md, every recipe key with its type, default and meaning, from the typed settings."""

import ast
import inspect
import textwrap
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from unmask.training.recipe import Recipe, SftRecipe

HEADER = """# Recipes

A recipe is one YAML file with the sections below; `unmask recipes` lists those that are shipped. Any key can be
changed on the command line, `unmask train tiny/forkgrpo trainer.steps=20`, and `recipe.yaml` in the run's folder is
the complete recipe as it ran. Made from the typed settings by `make docs`; do not edit.
"""


def field_docs(settings: type[BaseModel]) -> dict[str, str]:
    """Field name → the string below it in the class, or in one that it extends."""
    base = settings.__bases__[0]
    docs = field_docs(base) if base is not BaseModel else {}
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(body, ast.ClassDef)
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            docs[field.target.id] = " ".join(str(below.value.value).split()).replace("|", "\\|")
    return docs


def members(annotation: Any) -> list[type[BaseModel]]:
    """Settings classes inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in get_args(annotation) for found in members(inner)]


def type_text(annotation: Any) -> str:
    """An annotation as a reader would say it."""
    if annotation is type(None):
        return "none"
    origin = get_origin(annotation)
    if origin is Literal:
        return " \\| ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, types.UnionType):
        return " or ".join(type_text(inner) for inner in get_args(annotation))
    if origin is Annotated:
        return type_text(get_args(annotation)[0])
    if origin in (list, tuple):
        inner = [arg for arg in get_args(annotation) if arg is not Ellipsis]
        if len(inner) == 2:
            return f"[{type_text(inner[0])}, {type_text(inner[1])}]"
        return f"list of {type_text(inner[0])}"
    return {"int": "whole number", "float": "number", "str": "text", "bool": "true or false"}[annotation.__name__]


def range_text(field: FieldInfo) -> str:
    """The limits of a number, e.g. `≥ 1`."""
    signs = {
        annotated_types.Ge: "≥",
        annotated_types.Gt: ">",
        annotated_types.Le: "≤",
        annotated_types.Lt: "<",
    }
    limits = [
        f"{sign} {getattr(limit, kind.__name__.lower()):g}"
        for limit in field.metadata
        for kind, sign in signs.items()
        if isinstance(limit, kind)
    ]
    return f" ({', '.join(limits)})" if limits else ""


def default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, tuple):
        value = [list(item) if isinstance(item, tuple) else item for item in value]
    return "none" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def rows(settings: type[BaseModel], prefix: str) -> list[str]:
    """Table rows of the plain keys of a settings class."""
    docs = field_docs(settings)
    return [
        f"| `{prefix}{name}` | {type_text(field.annotation)}{range_text(field)} "
        f"| {default_text(field)} | {docs.get(name, '')} |"
        for name, field in settings.model_fields.items()
        if not members(field.annotation)
    ]


def sections(settings: type[BaseModel], prefix: str = "") -> list[str]:
    """Lines for a settings class and everything below it."""
    lines = []
    plain = rows(settings, prefix)
    if plain:
        lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |", *plain, ""]
    for name, field in settings.model_fields.items():
        found = members(field.annotation)
        for member in found:
            title = f"{prefix}{name}"
            if "name" in member.model_fields and get_origin(member.model_fields["name"].annotation) is Literal:
                title += f" (name: {get_args(member.model_fields['name'].annotation)[0]})"
            about = " ".join((inspect.getdoc(member) or "").split())
            lines += [f"### {title}", "", *([about, ""] if about and member.__doc__ else [])]
            lines += sections(member, f"{prefix}{name}.")
    return lines


def page() -> str:
    """The whole page."""
    parts = [HEADER]
    kinds: list[tuple[str, type[BaseModel]]] = [("unmask train", Recipe), ("unmask sft", SftRecipe)]
    for command, kind in kinds:
        parts += [f"## {command}", "", inspect.getdoc(kind) or "", "", *sections(kind)]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
