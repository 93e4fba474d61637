"""Manual pages: each is a document, linked to the pages of its section SEE ALSO.

`groff` makes text of them, as `man` does.
"""

import gzip
import os
import posixpath
import re
import shutil
import subprocess
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from index.corpus.formats.content import shorten
from index.document import SkippedInput
from index.errors import CorpusError
from index.progress import Progress
from training.sources.linked_document import LinkedDocument, Mention, without_overlaps
from training.sources.packages import Package, PackagedFile, read_files

_PAGE = re.compile(r"([^/]+)\.([1-9][A-Za-z]*)(\.gz)?$")
_TRANSLATED = re.compile(r"(^|/)man/(?!man\d)[^/]+/man\d")  # /usr/share/man/de/man1
_ONLY_ANOTHER = re.compile(rb"\s*\.so\s+(\S+)\s*$")
_INCLUDES = re.compile(rb"^[.'][ \t]*(so|soquiet|mso|msoquiet)\b.*$", re.MULTILINE)
_REFERENCE = re.compile(r"(?<![\w.+-])(\w[\w.+:@-]*) ?\(([1-9n])[A-Za-z]*\)")
_NAME = re.compile(r"(?<![\w.+-])\w[\w.+:@-]{2,}\w")
_SEE_ALSO = ("SEE ALSO",)
# Sections that pages of one author share, whatever the pages are about.
_LEFT_OUT = ("AUTHOR", "COPYRIGHT", "COLOPHON", "LICENSE", "LICENCE", "REPORTING BUGS")
# One line for each paragraph, no hyphenation, no escape sequences; safer mode is the default.
_GROFF = (
    *("groff", "-k", "-t", "-mandoc", "-Tutf8", "-P-cbou"),
    *("-rLL=1500n", "-rHY=0", "-dAD=l"),
)
_HYPHENS = str.maketrans({"‐": "-", "−": "-", "\u00ad": None})
_SECONDS = 30  # for one page


@dataclass(frozen=True, slots=True)
class _Page:
    """A page as it was found."""

    id: str
    name: str
    section: str
    package: Package
    source: bytes

    @property
    def key(self) -> tuple[str, str]:
        """Name and section by which others refer to it."""
        return self.name, self.section[0]


@dataclass(frozen=True, slots=True)
class _Rendered:
    """The text of a page.

    Attributes:
        text: without the sections that are left out.
        see_also: the text of these sections.
        names: what the page describes besides the name of its file.
        summary: the line of the section NAME.
    """

    text: str
    see_also: str
    names: tuple[str, ...]
    summary: str


def groff_is_installed() -> bool:
    """Return whether the program that reads manual pages is there."""
    return shutil.which(_GROFF[0]) is not None


def read_man_pages(packages: Sequence[Package], progress: Progress) -> list[LinkedDocument]:
    """Read the English manual pages of packages, with the links of their sections SEE ALSO.

    The sections SEE ALSO, AUTHORS, COPYRIGHT and the like are no part of the texts. A name of a
    page in the rest of a text, such as "open(2)", is a mention. Aliases count as the page.

    Args:
        packages: as `open_packages` returns them; of two pages with one name, that of the package
            of the link counts, then that of the first package.
        progress: is notified.

    Raises:
        CorpusError: a package is damaged.
    """
    pages: list[_Page] = []
    names = _Names()
    for package in packages:
        files = list(read_files(package, _is_page))
        own = list(_pages_of(package, files, progress))
        real = [page for page in own if not _ONLY_ANOTHER.match(page.source)]
        for page in real:
            names.add(page.key, package.name, page.id)
        for key, target in _aliases(files, own):
            names.add(key, package.name, target)
        pages += real
    progress.started("formatting manual pages", len(pages), unit="pages")
    rendered = dict(_render_all(pages, progress))
    for page in pages:
        for name in rendered[page.id].names if page.id in rendered else ():
            names.add((name, page.section[0]), page.package.name, page.id)
    return [_linked(page, rendered[page.id], names) for page in pages if page.id in rendered]


class _Names:
    """Which page a name and the first character of a section stand for."""

    def __init__(self) -> None:
        self._by_package: dict[tuple[str, str, str], str] = {}
        self._anywhere: dict[tuple[str, str], str] = {}
        self._bare: dict[tuple[str, str], str] = {}

    def add(self, key: tuple[str, str], package: str, page: str) -> None:
        """Add a name of a page, unless another page has it already."""
        self._by_package.setdefault((package, *key), page)
        self._anywhere.setdefault(key, page)
        self._bare.setdefault((package, key[0]), page)

    def find(self, name: str, section: str, package: str) -> str | None:
        """Return the page that a reference in a page of a package means."""
        there = self._by_package.get((package, name, section))
        return there or self._anywhere.get((name, section)) or self.find_bare(name, package)

    def find_bare(self, name: str, package: str) -> str | None:
        """Return the page of this package that has a name, in whatever section."""
        return self._bare.get((package, name))


def _is_page(path: str) -> bool:
    return _PAGE.search(path) is not None and _TRANSLATED.search(path) is None


def _pages_of(
    package: Package, files: Iterable[PackagedFile], progress: Progress
) -> Iterator[_Page]:
    for one in files:
        match = _PAGE.search(one.path)
        if one.link or match is None:
            continue
        try:
            source = gzip.decompress(one.data) if match[3] else one.data
        except (OSError, EOFError, zlib.error) as error:
            progress.skipped(SkippedInput(f"{package.name}: {one.path}", f"is damaged: {error}"))
            continue
        if source.lstrip()[:1] in (b".", b"'"):  # what has no macro is no manual page
            page_id = f"{package.name}/{match[1]}.{match[2]}"
            yield _Page(page_id, match[1], match[2], package, source)


def _aliases(
    files: Iterable[PackagedFile], pages: Iterable[_Page]
) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the names that are links to pages, or pages that only include another."""
    known = {f"{page.name}.{page.section}": page.id for page in pages}
    links = {one.path: one.link for one in files if one.link}
    for path in links:
        target = path
        for _ in range(len(links)):  # a link may lead to a link, or in a circle
            target = links.get(target, target)
        alias, owner = _PAGE.search(path), _PAGE.search(target)
        page = known.get(f"{owner[1]}.{owner[2]}") if owner else None
        if alias and page:
            yield (alias[1], alias[2][0]), page
    for one in pages:
        if match := _ONLY_ANOTHER.match(one.source):
            target = posixpath.basename(match[1].decode(errors="replace"))
            if target in known and known[target] != one.id:
                yield one.key, known[target]


def _render_all(pages: Sequence[_Page], progress: Progress) -> Iterator[tuple[str, _Rendered]]:
    """Yield the text of each page that can be formatted, by its id."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for page, result in zip(pages, pool.map(_try_render, pages), strict=True):
            if isinstance(result, CorpusError):
                progress.skipped(SkippedInput(page.id, str(result)))
            else:
                yield page.id, result
            progress.advanced(1)


def _try_render(page: _Page) -> _Rendered | CorpusError:
    try:
        return parse_page(format_page(page.source))
    except CorpusError as error:
        return error


def format_page(source: bytes) -> str:
    """Format a manual page as plain text; paragraphs are lines.

    A page cannot include files: what it would include is left out.

    Raises:
        CorpusError: groff failed, or took too long.
    """
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments, in groff's safer mode
            _GROFF, input=_INCLUDES.sub(b"", source), capture_output=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise CorpusError(f"was not formatted within {_SECONDS} seconds") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CorpusError(f"was not formatted: {reason[:200]}")
    return done.stdout.decode("utf-8", errors="replace").translate(_HYPHENS)


def parse_page(formatted: str) -> _Rendered:
    """Separate what the sections of a formatted page are for."""
    kept, see_also, names = [], [], ""
    for heading, body in _sections(formatted):
        if heading.startswith(_SEE_ALSO):
            see_also.append(body)
        elif not heading.startswith(_LEFT_OUT):
            kept.append(f"{heading}\n\n{body}".strip())
            names = names or (body if heading == "NAME" else "")
    summary = " ".join(names.split())
    before, dash, _ = summary.replace("—", " - ").replace("–", " - ").partition(" - ")
    listed = tuple(name.strip() for name in before.split(",")) if dash else ()
    return _Rendered("\n\n".join(kept), "\n".join(see_also), listed, summary)


def _sections(formatted: str) -> Iterator[tuple[str, str]]:
    """Yield headings in upper case, and the text below them; without page header and footer."""
    lines = [line.rstrip() for line in formatted.strip("\n").splitlines()][1:-1]
    heading, body = "", list[str]()
    for line in lines:
        if line and not line[0].isspace() and any(character.isalnum() for character in line):
            yield from _section(heading, body)
            heading, body = line.upper(), []
        else:
            body.append(line)
    yield from _section(heading, body)


def _section(heading: str, body: Sequence[str]) -> Iterator[tuple[str, str]]:
    text = re.sub(r"\n{3,}", "\n\n", textwrap.dedent("\n".join(body))).strip("\n")
    if heading and text:
        yield heading, text


def _linked(page: _Page, rendered: _Rendered, names: _Names) -> LinkedDocument:
    package = page.package
    mentions = []
    for match in _REFERENCE.finditer(rendered.text):
        target = names.find(match[1], match[2], package.name)
        if target and target != page.id:
            mentions.append(Mention(match.start(), match.end(), target))
    title = f"{page.name}({page.section})"
    return LinkedDocument(
        id=page.id,
        title=shorten(f"{title}: {rendered.summary}" if rendered.summary else title),
        text=rendered.text,
        links=frozenset(_targets(rendered.see_also, names, package.name)) - {page.id},
        mentions=without_overlaps(mentions),
        group=package.group,
        metadata=package.metadata,
    )


def _targets(see_also: str, names: _Names, package: str) -> Iterator[str]:
    """Yield the pages that a section SEE ALSO names, with a section or, in its package, without."""
    for match in _REFERENCE.finditer(see_also):
        if target := names.find(match[1], match[2], package):
            yield target
    for match in _NAME.finditer(see_also):
        if target := names.find_bare(match[0], package):
            yield target
