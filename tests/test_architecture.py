"""The rules of the house, read off the imports: encoder <- index <- service, and torch apart."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("encoder", "index", "service")
MAY_IMPORT = {
    "encoder": {"encoder"},
    "index": {"encoder", "index"},
    "service": {"encoder", "index", "service"},
}
# The half of `encoder` that makes checkpoints; nothing that serves imports it at its top.
TRAINING_HALF = (
    "encoder.models",
    "training",
    "encoder.export.create",
    "encoder.export.create",
    "encoder.export.export",
    "encoder.export.export_reranker",
    "encoder.export.quantise",
    "encoder.export.lstm",
    "encoder.export.quantise",
)
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, *, top_only: bool) -> set[str]:
    """Names of the modules that a file imports: all, or only when it is imported itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


def belongs_to(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_run_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    used = {name.split(".")[0] for name in imports_of(path, top_only=False)} & set(PACKAGES)
    assert used <= MAY_IMPORT[package]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_training_half_imports_torch(path: Path) -> None:
    if not belongs_to(name_of(path), TRAINING_HALF):
        imported = {name.split(".")[0] for name in imports_of(path, top_only=False)}
        assert not imported & {"torch", "onnx", "safetensors"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_that_serves_imports_the_training_half(path: Path) -> None:
    if not belongs_to(name_of(path), TRAINING_HALF):
        assert not any(belongs_to(n, TRAINING_HALF) for n in imports_of(path, top_only=True))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_api_imports_fastapi(path: Path) -> None:
    if not belongs_to(name_of(path), ("service.api",)):
        imported = {name.split(".")[0] for name in imports_of(path, top_only=False)}
        assert not imported & {"fastapi", "starlette"}


@pytest.mark.parametrize(
    ("module", "owner"),
    [("faiss", "index.vectors.faiss_index"), ("onnxruntime", "encoder.onnx_session")],
)
def test_an_engine_has_one_door(module: str, owner: str) -> None:
    users = {
        name_of(path)
        for path in MODULES
        if module in {name.split(".")[0] for name in imports_of(path, top_only=False)}
    }
    assert users <= {owner, "encoder.export.export", "encoder.export.quantise"}


@pytest.mark.parametrize("module", ["service.api.app", "service.cli.main"])
def test_serving_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
