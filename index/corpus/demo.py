"""The demo corpus: the docstrings of Python's standard library, which every machine has."""

import ast
import json
import re
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from encoder.atomic_files import write_atomically
from index.errors import CorpusError

MIN_WORDS = 150
MAX_WORDS = 12_000
# Tests, programs, a hundred codecs of the same few lines, what only some installations have.
_LEFT_OUT = frozenset(
    {"distutils", "encodings", "idlelib", "lib2to3", "test", "tests"}
    | {"tkinter", "turtle", "turtledemo"}
)
_PARAGRAPH_END = re.compile(r"\n[\W_]*(?:\n|$)")  # also a line that underlines
_SENTENCE = re.compile(r".+?[.!?](?=\s+[A-Z]|$)|.+")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def write_stdlib_corpus(path: Path) -> int:
    """Write the documentation of the standard library's modules as a JSON Lines corpus.

    One document a module that is written in Python, of 150 to 12,000 words: `id` is the dotted
    name, `title` the name and the first sentence of its docstring. The sources are parsed, not
    imported: the same Python gives the same bytes. `path` is replaced as a whole; its folder is
    created if it is missing.

    Returns:
        How many documents were written.

    Raises:
        CorpusError: this Python has no sources.
    """
    sources = Path(sysconfig.get_path("stdlib"))
    documents = sorted(_documents(sources), key=lambda document: document["id"])
    if not documents:
        raise CorpusError(f"{sources}: has no sources of the standard library")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(json.dumps(document) + "\n" for document in documents))
    return len(documents)


def _documents(sources: Path) -> Iterator[dict[str, str]]:
    for source in sources.rglob("*.py"):
        parts = source.relative_to(sources).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        private = any(part.startswith("_") or part in _LEFT_OUT for part in parts)
        if private or not parts or parts[0] not in sys.stdlib_module_names:
            continue
        name, module = ".".join(parts), ast.parse(source.read_bytes())
        # An alias, or a property with a setter, repeats its docstring.
        begin = f"{name}\n\n{_doc(module)}".strip()
        text = "\n\n".join(dict.fromkeys([begin, *_members(module)]))
        if MIN_WORDS <= len(text.split()) <= MAX_WORDS:
            paragraph = " ".join(_PARAGRAPH_END.split(_doc(module))[0].split())
            summary = "".join(_SENTENCE.findall(paragraph)[:1])
            title = f"{name}: {summary}" if summary else name
            yield {"id": name, "title": title, "text": text}


def _members(parent: _Documented, within: str = "") -> Iterator[str]:
    """Yield a section for each public class and function, and each method with a docstring."""
    for node in parent.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = ", ".join(map(ast.unparse, node.bases))
            yield _section(f"class {within}{node.name}" + (f"({bases})" if bases else ""), node)
            yield from _members(node, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            special = node.name.startswith("__") and _doc(node)
            if special or not node.name.startswith("_"):
                yield _section(f"{within}{node.name}({_parameters(node.args)})", node)


def _parameters(arguments: ast.arguments) -> str:
    groups: Sequence[Sequence[ast.arg | None]] = (
        *(arguments.posonlyargs, arguments.args, [arguments.vararg]),
        *(arguments.kwonlyargs, [arguments.kwarg]),
    )
    names = [given.arg for group in groups for given in group if given is not None]
    return ", ".join(name for name in names if name not in ("self", "cls"))


def _section(heading: str, node: _Documented) -> str:
    return f"{heading}\n{textwrap.indent(_doc(node), '    ')}".rstrip()


def _doc(node: _Documented) -> str:
    return ast.get_docstring(node) or ""
