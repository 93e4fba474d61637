"""The documentation of the standard library's modules as plain text.

`index.corpus.demo` runs this file as a script in a process of its own, so that the side effects of
importing some two hundred modules stay there. It imports the standard library only.

Not `pydoc`'s own rendering: under each class that repeats what the class inherits from `object`,
`Exception` or `Enum`, more than half of all words, the same in every module, and it prints values,
which hold paths, addresses and the environment of this machine. Here a class has the members that
it defines, and a parameter is a name.
"""

import importlib
import inspect
import json
import pkgutil
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any

MIN_WORDS = 150
MAX_WORDS = 12_000

# Private modules, `__main__` and packages of tests are left out by their names.
EXCLUDED = {
    "antigravity": "opens a browser when it is imported",
    "distutils": "only in Python 3.11, and some of it only with setuptools",
    "encodings": "a hundred codecs of the same few lines",
    "ensurepip": "unpacks pip",
    "idlelib": "a program; wants Tk",
    "lib2to3": "only up to Python 3.12; writes grammar files",
    "nt": "documented as os",
    "posix": "documented as os",
    "pydoc_data": "one table of strings",
    "test": "tests Python, with side effects of every kind",
    "this": "prints when it is imported",
    "tkinter": "wants Tk, which not every installation has",
    "turtle": "wants Tk",
    "turtledemo": "wants Tk",
}
_TESTS = ("test", "tests")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PARAGRAPH_END = re.compile(r"\n[\W_]*(?:\n|$)")  # also a line that underlines
_SENTENCE = re.compile(r".+?[.!?](?=\s+[A-Z]|$)|.+")
_NAMED_TUPLE_FIELD = "Alias for field number"


def documents() -> Iterator[dict[str, str]]:
    """Yield each module with enough documentation for a document, as id, title and text."""
    for name in sorted(sys.stdlib_module_names):
        for module in _with_submodules(name):
            text = render_module(module)
            if MIN_WORDS <= len(text.split()) <= MAX_WORDS:
                paragraph = " ".join(_PARAGRAPH_END.split(_doc(module))[0].split())
                summary = "".join(_SENTENCE.findall(paragraph)[:1])
                title = f"{module.__name__}: {summary}" if summary else module.__name__
                yield {"id": module.__name__, "title": title, "text": text}


def render_module(module: ModuleType) -> str:
    """Render the docstrings of a module and of the public classes and functions it defines."""
    sections = [f"{module.__name__}\n\n{_doc(module)}".strip()]
    for name, value in _public_members(module):
        if inspect.isclass(value):
            sections.extend(_class_sections(name, value))
        elif inspect.isroutine(value):
            sections.append(_section(name + _parameters(value), _doc(value)))
    # An alias, or a method that a module also offers as a function, repeats its docstring.
    return _ADDRESS.sub("", "\n\n".join(dict.fromkeys(sections)))


def _with_submodules(name: str) -> Iterator[ModuleType]:
    leaf = name.rpartition(".")[2]
    if name in EXCLUDED or leaf.startswith("_") or leaf in _TESTS:
        return
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit):  # whatever it is: this platform does not have the module
        return
    yield module
    for child in sorted(found.name for found in pkgutil.iter_modules(_path(module))):
        yield from _with_submodules(f"{name}.{child}")


def _path(module: ModuleType) -> list[str]:
    return list(getattr(module, "__path__", ()))


def _public_members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    exported = getattr(module, "__all__", None)
    for name, value in inspect.getmembers(module):
        if exported is not None:
            public = name in exported
        else:
            public = not name.startswith("_") and (
                inspect.isbuiltin(value) or inspect.getmodule(value) is module
            )
        if public and not _documented_elsewhere(value, module.__name__):
            yield name, value


def _documented_elsewhere(value: Any, module: str) -> bool:
    """Return whether a value is only re-exported from another public module."""
    origin = getattr(value, "__module__", None)
    if not isinstance(origin, str) or origin == module:
        return False
    parts = origin.split(".")
    return parts[0] not in EXCLUDED and not any(part.startswith("_") for part in parts)


def _class_sections(name: str, cls: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield _section(f"class {name}({bases})" if bases else f"class {name}", _doc(cls))
    for member, value in vars(cls).items():
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if inspect.isroutine(value) and _is_worth_it(member, value):
            yield _section(f"{name}.{member}{_parameters(value)}", _doc(value))
        elif inspect.isdatadescriptor(value) and _is_worth_it(member, value):
            yield _section(f"{name}.{member}", _doc(value))


def _is_worth_it(member: str, value: Any) -> bool:
    if member.startswith("__"):  # those of C types repeat the same text: "Return self<value."
        return inspect.isfunction(value) and _doc(value) != ""
    return not member.startswith("_") and not _doc(value).startswith(_NAMED_TUPLE_FIELD)


def _section(heading: str, doc: str) -> str:
    return f"{heading}\n{textwrap.indent(doc, '    ')}".rstrip()


def _doc(value: Any) -> str:
    """Return the docstring of the object itself; `inspect.getdoc` would give that of its base."""
    doc = getattr(value, "__doc__", None)
    return inspect.cleandoc(doc) if isinstance(doc, str) else ""


def _parameters(routine: Any) -> str:
    try:
        signature = inspect.signature(routine)
    except Exception:  # Python 3.13 raises AttributeError for some C functions
        return "()"
    names = [name for name in signature.parameters if name not in ("self", "cls")]
    return f"({', '.join(names)})"


def main() -> None:
    """Print the documents as JSON Lines, and nothing that modules print."""
    warnings.simplefilter("ignore")  # of deprecated modules
    with redirect_stdout(None):
        lines = [json.dumps(document) for document in documents()]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
