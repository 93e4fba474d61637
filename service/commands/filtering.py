"""The filter that a command takes: the JSON of POST /match."""

import json

import typer
from pydantic import TypeAdapter, ValidationError

from index.filters import Filter
from service.api.filter_bodies import FilterBody, FilterField

FILTER_HELP = (
    "Give only documents for whose metadata this holds, as in POST /match: "
    '{"field": "year", "range": {"gte": 2020}}.'
)
_FILTER: TypeAdapter[FilterBody] = TypeAdapter(FilterField)


def parse_filter(text: str) -> Filter:
    """Read a filter.

    Raises:
        BadParameter: it is not JSON, or refused; says where and why.
    """
    try:
        return _FILTER.validate_python(json.loads(text)).to_filter()
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"/{part}" for part in first["loc"])
        detail = first.get("ctx", {}).get("error", first["msg"])
        raise typer.BadParameter(f"#{place} {detail}", param_hint="--filter") from error
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"is not JSON: {error}", param_hint="--filter") from error
