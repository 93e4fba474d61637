"""The limits that are settings, in the OpenAPI document of a service with those settings."""

from typing import Any

from service.api.schemas.ops import limits_body
from service.settings import Settings

# (schema, field, keyword of JSON Schema, limit)
_FIELDS = (
    ("DocumentBody", "text", "maxLength", "max_text_characters"),
    ("IndexRequest", "documents", "maxItems", "max_documents_per_request"),
    ("MatchRequest", "text", "maxLength", "max_text_characters"),
    ("MatchRequest", "queries", "maxItems", "max_queries_per_request"),
    ("MatchRequest", "top_k", "maximum", "max_top_k"),
    ("QueryBody", "text", "maxLength", "max_text_characters"),
    ("RerankBody", "candidates", "maximum", "max_rerank_candidates"),
    ("SideBody", "text", "maxLength", "max_text_characters"),
    ("StandingQueryRequest", "text", "maxLength", "max_text_characters"),
)
_TOP_K = "top_k"  # of every GET that has it


def describe_limits(document: dict[str, Any], settings: Settings) -> None:
    """Add the limits of the settings to the fields and parameters that they bound.

    Limits of several fields together (`max_explained_matches`) cannot be said by a schema.
    """
    schemas, limits = document["components"]["schemas"], limits_body(settings)
    for schema, field, keyword, name in _FIELDS:
        schemas[schema]["properties"][field][keyword] = getattr(limits, name)
    _, texts = schemas["EmbeddingsRequest"]["properties"]["input"]["anyOf"]
    texts["maxItems"] = limits.max_embedding_inputs
    milliseconds = limits.rerank_seconds * 1000
    schemas["RerankBody"]["properties"]["budget_ms"]["maximum"] = milliseconds
    number, _ = schemas["MatchRequest"]["properties"]["rerank"]["anyOf"]
    number["maximum"] = limits.max_rerank_candidates
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == _TOP_K:
                    parameter["schema"]["maximum"] = limits.max_top_k
