"""Recipes: TOML files that pydantic models describe, of new checkpoints and of training runs."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from encoder.errors import EncoderError


class RecipeTable(BaseModel):
    """A table of a recipe: every field is known, of its own type and finite."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True
    )


T = TypeVar("T", bound=RecipeTable)


def read_recipe_file(path: Path, kind: type[T], error_class: type[EncoderError]) -> T:
    """Read a recipe file; errors are of `error_class`, and name file, field and what it must be."""
    try:
        return parse_recipe(tomllib.loads(path.read_text(encoding="utf-8")), kind, error_class)
    except (OSError, ValueError, error_class) as error:
        raise error_class(f"recipe {path}: {error}") from error


def parse_recipe(table: Mapping[str, Any], kind: type[T], error_class: type[EncoderError]) -> T:
    """Make a recipe of what a TOML file holds."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise error_class(_explain(error)) from error


def _explain(error: ValidationError) -> str:
    """Return one line: the path of each wrong field and what it must be."""
    return "; ".join(_explain_one(problem) for problem in error.errors(include_url=False))


def _explain_one(problem: ErrorDetails) -> str:
    # Tables of an array are counted from 1.
    path = ".".join(str(part + 1 if isinstance(part, int) else part) for part in problem["loc"])
    context, value = problem.get("ctx", {}), problem["input"]
    if problem["type"] == "extra_forbidden":
        message = "unknown field"
    elif problem["type"] == "missing":
        message = "missing"
    elif problem["type"] == "union_tag_not_found":
        message = "kind is missing"
    elif problem["type"] == "union_tag_invalid":
        message = f"kind must be one of {context['expected_tags']}, not {context['tag']!r}"
    else:
        message = problem["msg"].removeprefix("Value error, ")
        message = message.replace("Input should be", "must be")
        if path and isinstance(value, str | int | float):
            message += f", not {value!r}"
    return f"{path}: {message}" if path else message
