"""docs/reference, made of the code: `python -m tests.kit.reference` writes it.

The commands are those of the command line, and the requests those of the OpenAPI document.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer
from typer.cli import get_docs_for_click

from service.app import describe_app
from service.cli.main import make_app
from service.gate import COLLECTION_PREFIX

FOLDER = Path(__file__).parents[2] / "docs/reference"
_MADE = "Made of the code by `make reference`."
_HTTP = f"""# Requests and answers

{_MADE} The server shows the same at `/docs`, to be tried out, with the limits of its settings.
Every path is also below `/collections/{{collection}}`, but for `/collections`, `/livez`, `/readyz`,
`/metrics`, `/version` and `/problems`. Every path that has GET has HEAD.

Errors are `application/problem+json` (RFC 9457): `GET /problems/{{name}}` describes each.
"""
_LIMITS = {
    "minimum": "≥ {:,.16g}", "exclusiveMinimum": "> {:g}", "maximum": "≤ {:,.16g}",
    "exclusiveMaximum": "< {:g}", "minLength": "at least {:,} characters",
    "maxLength": "at most {:,} characters", "minItems": "at least {:,} items",
    "maxItems": "at most {:,} items",
}  # fmt: skip

Schema = Mapping[str, Any]


def reference() -> Mapping[str, str]:
    """Return the files of the reference by their names."""
    without_settings = {k: v for k, v in os.environ.items() if not k.startswith("LONGMATCH_")}
    with patch.dict(os.environ, without_settings, clear=True):
        command = typer.main.get_command(make_app())
        commands = get_docs_for_click(
            obj=command, ctx=typer.Context(command), name="longmatch", title="Commands"
        )
        document = describe_app().openapi()
    title, rest = commands.strip().split("\n", 1)
    return {
        "commands.md": f"{title}\n\n{_MADE}\n{rest}\n",
        "http.md": "\n".join([_HTTP, *_operations(document), *_schemas(document)]),
    }


def _operations(document: Schema) -> Iterator[str]:
    for path, operations in document["paths"].items():
        if path.startswith(f"{COLLECTION_PREFIX}/"):
            continue  # the same as without
        for method, operation in operations.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation['summary']}. {operation.get('description', '')}".strip() + "\n"
            known = document["components"]["parameters"]
            given = operation.get("parameters", ())
            yield from _parameters([known[item["$ref"].rpartition("/")[2]] for item in given])
            yield from _contents("Request", operation.get("requestBody"))
            yield from _answers(operation["responses"])


def _parameters(parameters: Sequence[Schema]) -> Iterator[str]:
    if parameters:
        yield "| Parameter | In | Form | |\n|---|---|---|---|"
        for parameter in parameters:
            form, text = _form(parameter["schema"]), _cell(parameter.get("description", ""))
            required = "required. " if parameter.get("required") else ""
            yield f"| `{parameter['name']}` | {parameter['in']} | {form} | {required}{text} |"
        yield ""


def _contents(name: str, body: Schema | None) -> Iterator[str]:
    for media_type, content in (body or {}).get("content", {}).items():
        yield f"{name}, `{media_type}`: {_form(content.get('schema', {}))}\n"


def _answers(responses: Mapping[str, Schema]) -> Iterator[str]:
    problems = []
    for status, answer in sorted(responses.items()):
        if status.startswith("2"):
            yield f"**{status}** {_cell(answer['description'])}\n"
            yield from _contents("Answer", answer)
        elif status != "default":
            problems.append(f"{status} {answer['description']}")
    if problems:
        yield f"Errors of its own: {'; '.join(problems)}.\n"


def _schemas(document: Schema) -> Iterator[str]:
    yield "## Bodies\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n"
        if "description" in schema:
            yield schema["description"].strip() + "\n"
        required = schema.get("required", ())
        if "properties" not in schema:
            yield f"{_form(schema)}\n"
            continue
        yield "| Field | Form | |\n|---|---|---|"
        for field, form in schema["properties"].items():
            text = ("required. " if field in required else "") + _cell(form.get("description", ""))
            yield f"| `{field}` | {_form(form)} | {text} |"
        yield ""


def _form(schema: Schema) -> str:
    """Return what values a schema allows, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema and "properties" not in schema:
            said = " or ".join(_form(variant) for variant in schema[several])
            default = schema.get("default")
            return said if default is None else f"{said}, default `{json.dumps(default)}`"
    if "enum" in schema:
        kind = ", ".join(f"`{value}`" for value in schema["enum"])
    elif schema.get("type") == "array":
        kind = f"list of {_form(schema['items'])}"
    else:
        kind = str(schema.get("format") or schema.get("type", "any"))
    said = [text.format(schema[key]) for key, text in _LIMITS.items() if key in schema]
    if schema.get("default") is not None:
        said.append(f"default `{json.dumps(schema['default'])}`")
    return _cell(", ".join([kind, *said]))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in reference().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
