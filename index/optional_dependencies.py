"""The optional dependencies ("extras") of the distribution, and the error of a missing one."""

from importlib.util import find_spec
from typing import Literal

Extra = Literal[
    "evaluate",
    "formats",
    "mcp",
    "otel",
    "parquet",
    "postgresql",
    "qdrant",
    "ray",
    "remote",
    "train",
]

# The modules that each extra of pyproject.toml installs, by the name they are imported under.
EXTRAS: dict[Extra, tuple[str, ...]] = {
    "evaluate": ("bm25s", "ir_measures", "matplotlib", "scipy", "sklearn"),
    "formats": ("kreuzberg",),
    "mcp": ("mcp",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "parquet": ("pyarrow",),
    "postgresql": ("psycopg",),
    "qdrant": ("qdrant_client",),
    "ray": ("fsspec", "ray"),
    "remote": ("fsspec",),
    "train": (
        *("huggingface_hub", "ir_measures", "matplotlib", "onnx", "onnxscript"),
        *("safetensors", "scipy", "sklearn", "torch"),
    ),
}


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message names the extra that installs it."""


def require_extra(extra: Extra, purpose: str, *modules: str) -> None:
    """Check that modules of an extra can be imported, without importing them.

    Args:
        extra: the extra that installs the modules.
        purpose: what needs them; the message begins with it.
        modules: names of modules; all modules of the extra when not given.

    Raises:
        MissingExtraError: at least one of them is not installed.
    """
    missing = [name for name in modules or EXTRAS[extra] if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{purpose} needs the extra {extra!r}: pip install 'longmatch[{extra}]' "
            f"(missing: {', '.join(missing)})"
        )
