"""The imports of a source tree, read without running it."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One import.

    Attributes:
        importer: the module that imports.
        imported: a module of the tree, or the dotted name of one outside of it.
        late: whether it happens in a function, or for a type checker alone.
    """

    importer: str
    imported: str
    late: bool

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"


class SourceTree:
    """The modules of some packages below a folder, and what they import."""

    def __init__(self, root: Path, packages: Sequence[str]) -> None:
        self.root = root
        self.packages = packages
        self.modules = {
            _name_of(path.relative_to(root)): path
            for package in packages
            for path in sorted((root / package).rglob("*.py"))
        }

    @cached_property
    def imports(self) -> list[Import]:
        """All imports, also of modules outside of the tree."""
        return [
            found
            for module, path in self.modules.items()
            for found in self._imports_of(module, ast.parse(path.read_text(encoding="utf-8")))
        ]

    @cached_property
    def inner(self) -> list[Import]:
        """Imports of modules of the tree."""
        return [one for one in self.imports if one.imported in self.modules]

    def room_of(self, module: str) -> str:
        """Return the folder of a module, as a dotted name."""
        return ".".join(self.modules[module].parent.relative_to(self.root).parts)

    def cycle(self) -> list[str]:
        """Return the modules of an import cycle; empty if there is none."""
        graph: dict[str, set[str]] = {module: set() for module in self.modules}
        for one in self.inner:
            graph[one.importer].add(one.imported)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []

    def _imports_of(self, module: str, tree: ast.AST, late: bool = False) -> Iterator[Import]:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(module, alias.name, late)
            elif isinstance(node, ast.ImportFrom):
                for name in self._imported_from(node):
                    yield Import(module, name, late)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named, colon, _ = node.value.partition(":")  # "module:name", as in entry points
                if colon and named in self.modules:
                    yield Import(module, named, False)
            else:
                yield from self._imports_of(module, node, late or _is_late(node))

    def _imported_from(self, node: ast.ImportFrom) -> set[str]:
        """Return modules: of `from a import b` it is a.b where that is one, and else a."""
        package = "." * node.level + (node.module or "")
        names = {f"{package}.{alias.name}" for alias in node.names}
        modules = names & self.modules.keys()
        return modules | ({package} if names - modules else set())


def _name_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_late(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def belongs(module: str, rooms: Sequence[str]) -> bool:
    """Return whether a module is one of these, or in one of these."""
    return any(module == room or module.startswith(f"{room}.") for room in rooms)
