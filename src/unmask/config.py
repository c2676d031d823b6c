"""From a YAML file and overrides to a validated recipe, before anything heavy is loaded.

Errors become one line that names the recipe, the key and what would be right.
"""

import types
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from unmask.errors import UnmaskError, nearest
from unmask.training.recipe import Recipe, SftRecipe

AnyRecipe = TypeVar("AnyRecipe", Recipe, SftRecipe)
COMMANDS: dict[type[BaseModel], str] = {Recipe: "train", SftRecipe: "sft"}


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key given twice is an error; plain YAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.YAMLError(f"{key} is given twice, line {node.start_mark.line + 1} and below")
        return super().construct_mapping(node, deep)


def recipe_folder() -> Path:
    """Where the shipped recipes lie: inside the installed package, or beside its source in a checkout."""
    here = Path(__file__).parent
    return here / "recipes" if (here / "recipes").is_dir() else here.parents[1] / "recipes"


def shipped_recipes() -> dict[str, Path]:
    """Name → file of every shipped recipe, e.g. `tiny/forkgrpo`."""
    folder = recipe_folder()
    return {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.glob("*/*.yaml"))}


def find_recipe(name: str) -> Path:
    """The file of a recipe given by path or shipped name.

    Raises:
        UnmaskError: there is none; names the nearest shipped one.
    """
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise UnmaskError(f"recipe {name}: no such file")
        return Path(name)
    shipped = shipped_recipes()
    if name not in shipped:
        raise UnmaskError(f"recipe {name}: unknown{nearest(name, shipped)}")
    return shipped[name]


def load_recipe(name: str, overrides: list[str] | tuple[str, ...], kind: type[AnyRecipe]) -> AnyRecipe:
    """Read, override and validate a recipe.

    Args:
        name: path of a YAML file or name of a shipped recipe.
        overrides: `key.key=value`, the value in YAML.
        kind: `Recipe` or `SftRecipe`.

    Raises:
        UnmaskError: one line that names the recipe, the key and what would be right.
    """
    path = find_recipe(name)
    try:
        data = yaml.load(path.read_text(), _UniqueKeys)  # a SafeLoader
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise UnmaskError(f"recipe {name}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise UnmaskError(f"recipe {name}: a recipe is a mapping of sections, e.g. `task: {{name: sudoku}}`")
    for other, command in COMMANDS.items():
        if other is not kind and ("sft" in data) == (other is SftRecipe):
            raise UnmaskError(
                f"recipe {name}: this is a recipe for `unmask {command}`, not for `unmask {COMMANDS[kind]}`"
            )
    for override in overrides:
        apply_override(data, override)
    return validate(data, kind, f"recipe {name}")


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set `a.b=value` in a nested mapping, in place."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UnmaskError(f"override {override!r}: write it as key=value, e.g. trainer.steps=20")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UnmaskError(f"override {override!r}: the value is not valid YAML") from error
    *sections, last = key.split(".")
    for section in sections:
        inner = data.setdefault(section, {})
        if inner is None:
            inner = data[section] = {}
        if not isinstance(inner, dict):
            raise UnmaskError(f"override {override!r}: {section} holds a value, not a section")
        data = inner
    data[last] = value


def validate(data: dict[str, Any], kind: type[AnyRecipe], where: str) -> AnyRecipe:
    """Pydantic's verdict as one line for people."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems = [explain(problem, kind) for problem in error.errors()]
    more = f" (and {len(problems) - 1} more: {'; '.join(problems[1:])})" if len(problems) > 1 else ""
    raise UnmaskError(f"{where}: {problems[0]}{more}")


def explain(problem: Any, kind: type[BaseModel]) -> str:
    """One pydantic error as `key: what is wrong; what would be right`."""
    key, owner = _locate(problem["loc"], kind)
    given = problem["input"]
    match problem["type"]:
        case "extra_forbidden":
            return f"{key} is unknown{nearest(key.rsplit('.', 1)[-1], owner.model_fields)}"
        case "missing":
            return f"{key} is missing"
        case "union_tag_invalid":
            allowed = [tag.strip(" '") for tag in problem["ctx"]["expected_tags"].split(",")]
            return f"{key}.name={problem['ctx']['tag']} is unknown{nearest(problem['ctx']['tag'], allowed)}"
        case "union_tag_not_found":
            return f"{key}.name is missing"
        case "literal_error":
            allowed = [tag.strip(" '") for tag in problem["ctx"]["expected"].replace(" or ", ",").split(",")]
            return f"{key}={given} is unknown{nearest(str(given), allowed)}"
        case "value_error":
            return f"{key}: {problem['ctx']['error']}" if key else str(problem["ctx"]["error"])
        case _:
            message = problem["msg"]
            return f"{key}={given!r}: {message[0].lower()}{message[1:]}"


def _locate(location: tuple[str | int, ...], kind: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """Dotted key of an error, without pydantic's union tags, and the settings class that owns its last part."""
    owner = kind
    parts: list[str] = []
    members: list[type[BaseModel]] = []
    for part in location:
        if part in {tag for member in members for tag in _tags(member)}:
            owner = next(member for member in members if part in _tags(member))
            members = []
            continue
        if members:
            owner, members = members[0], []
        parts.append(str(part))
        field = owner.model_fields.get(str(part))
        members = _settings_in(field.annotation) if field else []
    return ".".join(parts), owner


def _tags(settings: type[BaseModel]) -> tuple[Any, ...]:
    field = settings.model_fields.get("name")
    return get_args(field.annotation) if field else ()


def _settings_in(annotation: Any) -> list[type[BaseModel]]:
    """The settings classes that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return [found for inner in get_args(annotation) for found in _settings_in(inner)]
    return []


def dump(recipe: BaseModel) -> str:
    """The complete recipe, defaults included, as YAML that runs again."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
