"""The documentation of a module of Python's standard library as a Markdown page."""

import inspect
import re
from importlib import import_module

# Within a paragraph; a line that is indented, or that begins a list, stays one.
_LINE_END = re.compile(r"(?<=\S)\n(?=\w)")


def render_module(name: str) -> str:
    """Return a page: the module's documentation, and a section for each of its public classes."""
    module = import_module(name)
    parts = [f"# {name}", _documentation(module)]
    for title in getattr(module, "__all__", vars(module)):
        member = getattr(module, title)
        if inspect.isclass(member) and member.__module__ == name:
            parts += [f"## {title}", _documentation(member), *_methods(member)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _methods(owner: type) -> list[str]:
    """Return the public functions of a class, each with its documentation."""
    return [
        f"{name}{inspect.signature(member)}\n\n{_documentation(member)}"
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and not name.startswith("_") and member.__doc__
    ]


def _documentation(member: object) -> str:
    return _LINE_END.sub(" ", inspect.getdoc(member) or "").strip()
