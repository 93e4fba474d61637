"""The router of all routes, and the responses that they share in the OpenAPI document."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from index.directory.collections import NAME_PATTERN
from service.errors import PROBLEM_TYPES
from service.gate import COLLECTION_PREFIX, MAX_TIMEOUT_MS, TIMEOUT_HEADER, RuledRoute, Rules
from service.problem_responses import PROBLEM_JSON
from service.schemas import optional

# What the gate checks of a request, for the document: it has checked it before a route is called.
_KEY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key of `longmatch keys create`, where the service has any.",
    }
}
_TIMEOUT = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "required": False,
    "description": "Milliseconds after which the request is cancelled (504).",
    "schema": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS},
    "examples": {"two": {"value": 2000}},
}
CollectionName = Annotated[
    str,
    Path(
        alias="collection",
        pattern=NAME_PATTERN,
        description="The name of the collection.",
        openapi_examples={"papers": {"value": "papers"}},
    ),
]


def _operation_id(route: APIRoute) -> str:
    below = route.path.startswith(f"{COLLECTION_PREFIX}/")
    return f"{route.name}_of_collection" if below else route.name


class Router(APIRouter):
    """A router whose routes have `Rules`, and are below each collection, too.

    The application takes its routes as they are. `FastAPI.include_router` would make each of them
    again at the first request, for a fifth of a second, and look for the route of a request twice.
    """

    def __init__(self, rules: Rules | None = None, **options: Any) -> None:
        """Take the rules of its routes, and the options of `APIRouter`."""
        options = {"route_class": RuledRoute, **options}
        super().__init__(generate_unique_id_function=_operation_id, **options)
        self._rules = Rules() if rules is None else rules
        below = f"{COLLECTION_PREFIX}{options.pop('prefix', '')}"
        self._below = APIRouter(prefix=below, generate_unique_id_function=_operation_id, **options)

    @property
    def all_routes(self) -> list[Any]:
        """Its routes, and those below a collection."""
        return [*self.routes, *self._below.routes]

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Add a route, and the one below a collection, if it belongs to one."""
        rules = replace(self._rules, **getattr(endpoint, "rules", {}))
        given = options.pop("openapi_extra", None) or {}
        key: dict[str, Any] = {} if rules.keyless == "always" else {"security": [{"key": []}]}
        timeout = {} if rules.cost == "nothing" else {"parameters": [_reference(TIMEOUT_HEADER)]}
        extra = {**given, **key, **timeout}
        super().add_api_route(path, endpoint, **options, openapi_extra=extra)
        _take_rules(self.routes[-1], rules, f"{self.prefix}{path}")
        if rules.collection:
            good = {
                status: response
                for status, response in (options.get("responses") or {}).items()
                if status == "default" or int(status) < HTTPStatus.BAD_REQUEST
            }
            below = options | {"responses": good, "description": f"See {self.prefix}{path}."}
            below["openapi_extra"] = {**given, **key, "parameters": [_reference("collection")]}
            self._below.add_api_route(path, endpoint, **below)
            _take_rules(self._below.routes[-1], rules, f"{self.prefix}{path}")


def _take_rules(route: Any, rules: Rules, template: str) -> None:
    route.rules, route.template = rules, template


def _reference(parameter: str) -> dict[str, str]:
    """Return the reference to a parameter that operations share."""
    return {"$ref": f"#/components/parameters/{parameter}"}


_SCHEMAS = "#/components/schemas/{model}"
_OF_ROUTE = {"$ref": "#/components/responses/problem"}

_REFUSALS = (
    "malformed-request", "key-required", "scope-missing", "host-not-allowed",
    "collection-not-found", "upload-too-slow", "invalid-input", "rate-limited", "internal-error",
    "document-damaged", "overloaded", "not-ready", "engine-failed", "shutting-down",
    "deadline-passed",
)  # fmt: skip
_OF_BODIES = ("malformed-body", "body-too-large", "unsupported-media-type")
# Of each group what it says, and the names of its problems.
GROUPS = {
    "read": ("Refused or failed", _REFUSALS),
    "write": ("Nothing was changed", (*_REFUSALS, *_OF_BODIES, "storage-full", "storage-failed")),
    "encode": (
        "Nothing was encoded",
        (*_REFUSALS, *_OF_BODIES, "request-too-large", "encoding-failed"),
    ),
}


Responses = dict[int | str, dict[str, Any]]


def _of_group(group: str, good: Mapping[int, str | dict[str, Any]], *names: str) -> Responses:
    """Describe the responses of a route: good ones, and problems of its group and by name.

    A good response is given as it is described or by its description alone.
    """
    titles: dict[int, list[str]] = {}
    for kind in (PROBLEM_TYPES[name] for name in names):
        titles.setdefault(kind.status, []).append(kind.title)
    shared = {"$ref": f"#/components/responses/{group}", "description": GROUPS[group][0]}
    refused: Responses = {
        status: {**_OF_ROUTE, "description": "; ".join(named)} for status, named in titles.items()
    }
    described: Responses = {
        status: {"description": known} if isinstance(known, str) else known
        for status, known in good.items()
    }
    return {**described, "default": shared, **refused}


READ, WRITE, ENCODE = (partial(_of_group, group) for group in GROUPS)


def _response(what: str, names: Iterable[str]) -> dict[str, Any]:
    described = ", ".join(f"`{name}`" for name in names)
    content = {PROBLEM_JSON: {"schema": {"$ref": _SCHEMAS.format(model="Problem")}}}
    return {"description": f"{what}: {described}. See /problems/NAME.", "content": content}


_OF_GROUPS = {name for _, names in GROUPS.values() for name in names}
_RESPONSES = {name: _response(*group) for name, group in GROUPS.items()} | {
    "problem": _response(
        "What is wrong with a request to this path",
        (name for name in PROBLEM_TYPES if name not in _OF_GROUPS),
    )
}


class FieldErrorBody(BaseModel):
    """A field of a request that is wrong."""

    pointer: str | None = optional("JSON pointer into the body.")
    parameter: str | None = optional("Path or query parameter, or header.")
    detail: str
    limit: float | None = optional("The limit that was exceeded.")
    tokens: int | None = optional("Tokens of the text.")


class OpenAIErrorBody(BaseModel):
    """A problem as clients of OpenAI's API read it."""

    message: str
    type: str
    param: str | None
    code: str


class ProblemBody(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="Described at this path.")
    title: str
    status: int
    detail: str = Field(description="What went wrong this time.")
    instance: str = Field(description="Path of the request.")
    request_id: str = Field(description="As in X-Request-ID and in the log.")
    retry_after: int | None = optional("Seconds, as in Retry-After.")
    tokens: int | None = optional("Tokens of the texts together.")
    limit: float | None = optional("The limit that was exceeded.")
    id: str | None = optional("Of the stored document that is damaged.")
    error: OpenAIErrorBody | None = optional("Only below /v1.")
    errors: list[FieldErrorBody] | None = optional("The fields that are wrong.")


def _shared(known: dict[str, Any], parameter: dict[str, Any]) -> dict[str, Any]:
    """Put a parameter among those of all operations, once, and return the reference to it.

    A path, a query and a header hold text: what is not given is absent, not null.
    """
    if "$ref" in parameter:
        return parameter
    kinds = parameter["schema"].pop("anyOf", [])
    for kind in kinds:
        parameter["schema"] |= kind if kind != {"type": "null"} else {}
    name = parameter["name"]
    while known.setdefault(name, parameter) != parameter:
        name += "_"
    return _reference(name)


class DescribedFastAPI(FastAPI):
    """An application whose OpenAPI document has the responses that its routes share."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            document = super().openapi()
            components = document["components"]
            problem = ProblemBody.model_json_schema(ref_template=_SCHEMAS)
            components["schemas"] |= {**problem.pop("$defs"), "Problem": problem}
            components |= {"responses": _RESPONSES, "securitySchemes": _KEY}
            components["parameters"] = parameters = {TIMEOUT_HEADER: _TIMEOUT}
            for operations in document["paths"].values():
                for operation in operations.values():
                    if "parameters" in operation:
                        given = operation["parameters"]
                        operation["parameters"] = [_shared(parameters, each) for each in given]
        return super().openapi()
