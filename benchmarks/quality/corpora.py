"""Corpora with judgements that no training has seen, built from public packages and checkouts.

    python -m benchmarks.quality.corpora KIND SOURCE OUTPUT

Judgements of `manuals` are links of authors (SEE ALSO). Those of the others are not:

- `translated-CODE`: manual pages translated into de, fr or ja, or the English ones (en), with the
  links of the English pages; and `twins-CODE`: pages in two languages, where the twin is relevant.
  The name of a page is masked in its text.
- the same matter in other words: `info` (a manual page and the chapter of the Info manual on the
  same program), `guides` (a page of Python Module of the Week and one of the library reference on
  the same module), `translations` (cantos, runos and books of epics by two or three translators).
  The name of the program or module is masked in its own documents, and there are no titles.
- classes: `sections` (manual pages of packages in one section of Debian) and `genres` (the Brown
  corpus).

SOURCE is, for `manuals`, `info`, `translated-` and `twins-`, a folder of .deb files; for
`sections`, one with a folder of them for each section; for `guides`, one with `library` (HTML)
and `pymotw-3`; for `translations`, one with `crossdante` and `mythic-library`; for `genres`,
`brown.zip` of nltk_data; for `part`, a corpus with judgements of which `LIMIT` documents are kept.
"""

import gzip
import html
import random
import re
import subprocess
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from evaluation.judgements import read_qrels, read_splits
from index.corpus.formats.html import element_text, parse_markup
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from training.data.corpus_folder import DataSet, new_folder, write_corpus

LIMIT = 1_200  # documents of `part`
LINKED = 450  # documents of `manuals`
CLASS_DOCUMENTS = 30  # of a section or genre
TRANSLATED = 150  # of `translated` in each language
UNRELATED = 150  # documents of `info` and `guides` that nothing is relevant to
MIN_WORDS, MAX_WORDS = 150, 6_000  # longer documents take most of the time and say no more
_SEED = 1
_LANGUAGES = {"en": ".", "de": "de", "fr": "fr", "ja": "ja"}  # and where their pages lie

Judgements = dict[str, dict[str, int]]


@dataclass(slots=True)
class Corpus:
    """Documents by id, as title and text, and the relevant documents of queries among them."""

    documents: dict[str, tuple[str, str]] = field(default_factory=dict)
    judgements: Judgements = field(default_factory=lambda: defaultdict(dict))

    def add(self, name: str, text: str, title: str = "") -> bool:
        """Add a document unless it is too short or long, and return whether it was added."""
        fits = MIN_WORDS <= len(text.split()) <= MAX_WORDS
        if fits:
            self.documents[name] = (title, text)
        return fits

    def without_most_unrelated(self) -> "Corpus":
        """Return the corpus with `UNRELATED` of the documents that nothing is relevant to."""
        alone = [name for name in self.documents if not self.judgements.get(name)]
        kept = set(random.Random(_SEED).sample(alone, min(UNRELATED, len(alone))))
        documents = {
            name: document
            for name, document in self.documents.items()
            if self.judgements.get(name) or name in kept
        }
        return Corpus(documents, self.judgements)

    def relate(self, groups: Iterable[Iterable[str]], kind: Callable[[str], str]) -> None:
        """Make documents of one group and of different kinds relevant to each other."""
        for group in groups:
            members = [name for name in group if name in self.documents]
            for name in members:
                for other in members:
                    if other != name and (kind is str or kind(other) != kind(name)):
                        self.judgements[name][other] = 1


def write(corpus: Corpus, output: Path) -> str:
    """Write a corpus, every query of it in the part `valid`, and return its numbers."""
    queries = {query: found for query, found in corpus.judgements.items() if found}
    content = DataSet(
        (Document(name, text, title) for name, (title, text) in corpus.documents.items()),
        judgements=[(q, name, rel) for q, found in queries.items() for name, rel in found.items()],
        parts={name: "valid" if name in queries else "train" for name in corpus.documents},
    )
    with new_folder(output) as folder:
        write_corpus(folder, content)
    words = sum(len(text.split()) for _, text in corpus.documents.values())
    judged = sum(map(len, queries.values()))
    documents = len(corpus.documents)
    return f"{documents} documents, {words} words, {len(queries)} queries, {judged} judgements"


# Manual pages

_OMITTED = re.compile(
    r"^(SEE ALSO|AUTHORS?|COPYRIGHT|COPYING|LICENSE|REPORTING BUGS|BUGS|COLOPHON|AVAILABILITY"
    r"|NAME|SIEHE AUCH|AUTOR(EN)?|ÜBERSETZUNG|BEZEICHNUNG|KOLOPHON|VERFÜGBARKEIT|FEHLER BERICHTEN"
    r"|VOIR AUSSI|AUTEURS?|TRADUCTION|NOM|COLOPHON|DISPONIBILITÉ|RAPPORTER DES BOGUES"
    r"|関連項目|著者|作者|名前|名称|この文書について|バグの報告|著作権)$"
)
_LARGEST_PAGE = 20_000  # bytes, packed
_PAGE = re.compile(r"\b([A-Za-z0-9_.+:-]+)\s?\((\d[a-z]*)\)")


@dataclass(frozen=True, slots=True)
class ManualPage:
    """A page as name(section), its text without the sections that name others, and its links."""

    id: str
    text: str
    links: frozenset[str]


def read_pages(files: Iterable[Path]) -> list[ManualPage]:
    """Render manual pages; one that is only a link to another is left out."""
    with ThreadPoolExecutor(2) as pool:
        return [page for page in pool.map(_read_page, files) if page]


def _read_page(path: Path) -> ManualPage | None:
    source = gzip.decompress(path.read_bytes())
    if source.startswith(b".so "):
        return None
    shown = subprocess.run(
        ["groff", "-K", "utf8", "-mandoc", "-t", "-Tutf8", "-P-c", "-P-b", "-P-u"],
        input=source,
        capture_output=True,
        check=False,
    ).stdout.decode(errors="replace")
    parts: dict[str, list[str]] = defaultdict(list)
    heading = ""
    for line in shown.splitlines()[1:-1]:
        if line and not line[0].isspace():
            heading = line.strip()
        else:
            parts[heading].append(line)
    own = _page_id(path)
    seen = " ".join(parts.get("SEE ALSO", [])).replace("‐\n", "").replace("\xad", "")
    links = frozenset(f"{n}({s})" for n, s in _PAGE.findall(seen)) - {own}
    kept = (x for name, lines in parts.items() if not _OMITTED.match(name) for x in (name, *lines))
    return ManualPage(own, _join("\n".join(kept)), links)


def _page_id(path: Path) -> str:
    name, section = path.name.removesuffix(".gz").rsplit(".", 1)
    return f"{name}({section})"


def _join(text: str) -> str:
    """Join the words that a line break has divided, and the lines of a paragraph."""
    text = re.sub(r"(?<=\w)[‐\xad]\n\s*(?=[a-z])", "", text)
    return re.sub(r"[ \t]+", " ", re.sub(r"\n(?=\S)|\n\s+(?=\S)", "\n", text)).strip()


def _manuals(folder: Path, language: str = ".") -> list[Path]:
    """Return the manual pages below a folder, of programs and of the system; in English or CODE."""
    files = folder.glob(f"usr/share/man/{language}/man*/*.gz")
    return sorted(
        path
        for path in files
        if path.is_file() and not path.is_symlink() and path.stat().st_size < _LARGEST_PAGE
    )


def _unpack(packages: Iterable[Path], folder: Path) -> None:
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True, capture_output=True)


def manuals(source: Path) -> Corpus:
    """Manual pages that name each other under SEE ALSO."""
    corpus = Corpus()
    with tempfile.TemporaryDirectory() as folder:
        _unpack(sorted(source.glob("*.deb")), Path(folder))
        pages = {p.id: p for p in read_pages(_manuals(Path(folder))) if len(p.text.split()) >= 300}
    linked: dict[str, set[str]] = defaultdict(set)
    for page in pages.values():
        for other in page.links & pages.keys():
            linked[page.id].add(other)
            linked[other].add(page.id)
    names = sorted(name for name, others in linked.items() if len(others) <= 40)
    for name in sorted(random.Random(_SEED).sample(names, min(LINKED, len(names)))):
        corpus.add(name, pages[name].text, name.split("(")[0])
    for name in corpus.documents:
        related = sorted(linked[name] & corpus.documents.keys())
        if len(related) >= 2:
            corpus.judgements[name] = dict.fromkeys(related, 1)
    return corpus


def sections(source: Path) -> Corpus:
    """The longest manual page of a package; relevant are those of the same section of Debian."""
    corpus, rng = Corpus(), random.Random(_SEED)
    groups = []
    for section in sorted(path for path in source.iterdir() if path.is_dir()):
        found = []
        for package in sorted(section.glob("*.deb")):
            with tempfile.TemporaryDirectory() as folder:
                _unpack([package], Path(folder))
                files = [p for p in _manuals(Path(folder)) if p.parent.name in ("man1", "man6")]
                if files:
                    largest = max(files, key=lambda p: p.stat().st_size)
                    found += [p for p in read_pages([largest]) if len(p.text.split()) >= 250]
        chosen = rng.sample(found, min(CLASS_DOCUMENTS, len(found)))
        names = [f"{section.name}/{page.id}" for page in chosen]
        for name, page in zip(names, chosen, strict=True):
            corpus.add(name, page.text)
        groups.append(names)
    corpus.relate(groups, str)
    return corpus


def translated(source: Path, code: str, *, twins: bool = False) -> Corpus:
    """The same manual pages in any language of `_LANGUAGES`; twins: in it and in English."""
    corpus, chosen, english = Corpus(), dict[str, None](), dict[str, ManualPage]()
    with tempfile.TemporaryDirectory() as unpacked:
        folder = Path(unpacked)
        _unpack(sorted(source.glob("*.deb")), folder)
        files = {
            language: {_page_id(path): path for path in _manuals(folder, below)}
            for language, below in _LANGUAGES.items()
        }
        common = sorted(set.intersection(*map(set, files.values())))

        def choose(name: str) -> frozenset[str]:
            pages = read_pages([files["en"][name]])
            if pages and MIN_WORDS <= len(pages[0].text.split()) <= 3 * MIN_WORDS:
                chosen[name], english[name] = None, pages[0]
            return english[name].links.intersection(common) if name in chosen else frozenset()

        for name in random.Random(_SEED).sample(common, len(common)):
            if len(chosen) < TRANSLATED:
                for linked in sorted(choose(name))[:2]:
                    choose(linked)
        for language in (code, "en") if twins else (code,):
            pages = read_pages(files[language][name] for name in chosen)
            for name, page in zip(chosen, pages, strict=True):
                corpus.documents[f"{language}/{name}"] = "", _masked(page.text, name.split("(")[0])
    if twins:
        corpus.relate(([f"{code}/{n}", f"en/{n}"] for n in chosen), lambda n: n.split("/")[0])
    else:
        pairs = ([f"{code}/{n}", f"{code}/{o}"] for n in chosen for o in english[n].links)
        corpus.relate(pairs, str)
    return corpus


# The same matter in other words

_NODE = re.compile(r"\x1f\nFile: (\S+),\s+Node: ([^,\n]+),.*?Up: ([^,\n]+)\n(.*?)(?=\x1f|\Z)", re.S)
_INVOKING = re.compile(
    r"^(?:Invoking |Invoke )(?:the )?([A-Za-z0-9_.+-]+)|^([A-Za-z0-9_.+-]+) [Ii]nvocation$"
)


def info(source: Path) -> Corpus:
    """A manual page and the chapter of an Info manual that tells how to invoke the program.

    Other chapters of the manuals are there as negatives.
    """
    corpus = Corpus()
    groups: dict[str, list[str]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as unpacked:
        folder = Path(unpacked)
        _unpack(sorted(source.glob("*.deb")), folder)
        programs = {p.name.split(".")[0]: p for p in _manuals(folder) if p.parent.name == "man1"}
        for name, chapter, text in _read_chapters(folder / "usr/share/info"):
            called = _INVOKING.match(chapter)
            program = (called[1] or called[2]) if called else ""
            if program not in programs and called:
                program = name if name in programs else ""
            text = _masked(text, program) if program else text
            if corpus.add(f"{name}#{chapter}", text) and program:
                groups[program].append(f"{name}#{chapter}")
        for program in list(groups):
            page = _read_page(programs[program])
            if page and corpus.add(page.id, _masked(page.text, program)):
                groups[program].append(page.id)
    corpus.relate(groups.values(), lambda name: "info" if "#" in name else "man")
    return corpus.without_most_unrelated()


def _masked(text: str, name: str) -> str:
    return re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w])", "_", text, flags=re.I)


def _read_chapters(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Read Info manuals; yield manual, chapter and the text of the chapter with its sections."""
    for path in sorted(folder.glob("*.info.gz")):
        text = gzip.decompress(path.read_bytes()).decode(errors="replace")
        number = 1
        while (part := path.with_name(f"{path.name[:-3]}-{number}.gz")).exists():
            text += gzip.decompress(part.read_bytes()).decode(errors="replace")
            number += 1
        nodes = {node: (up, body) for _, node, up, body in _NODE.findall(text)}
        chapters: dict[str, list[str]] = defaultdict(list)
        for node, (up, body) in nodes.items():
            top, above = node, up
            while above in nodes and above != "Top" and not _INVOKING.match(top):
                top, above = above, nodes[above][0]
            if top != "Top" and not re.search(r"[Ii]ndex|GNU|Licen[sc]e|Copying", top):
                body = re.sub(r"\* Menu:.*?(?=\n\n[^*\s]|\Z)", "", body, flags=re.S)
                chapters[top].append(_join(body))
        for chapter, bodies in chapters.items():
            yield path.name.removesuffix(".info.gz"), chapter, "\n".join(bodies)


def guides(source: Path) -> Corpus:
    """Pages of Python Module of the Week, and those of the library reference on the module."""
    corpus = Corpus()
    groups: dict[str, list[str]] = defaultdict(list)
    for path in sorted((source / "library").glob("*.html")):
        name, module = f"library/{path.name}", path.stem
        if not path.is_symlink() and corpus.add(name, _masked(_page_text(path), module)):
            groups[module].append(name)
    articles = source / "pymotw-3" / "source"
    for path in sorted(articles.glob("*/*.rst")):
        module = path.parent.name
        if corpus.add(f"pymotw/{path.relative_to(articles)}", _masked(_prose(path), module)):
            groups[module].append(f"pymotw/{path.relative_to(articles)}")
    corpus.relate(groups.values(), lambda name: name.split("/")[0])
    return corpus.without_most_unrelated()


_NAVIGATION = {"headerlink", "viewcode-link", "toctree-wrapper", "contents", "sphinxsidebar"}


def _page_text(path: Path) -> str:
    """Return the text of the main part of a page of Sphinx, without navigation."""
    content = parse_markup(path.read_text(encoding="utf-8")).xpath("//*[@role='main']")[0]
    for element in list(content.iterdescendants("*")):
        if element.tag == "nav" or _NAVIGATION & set(element.get("class", "").split()):
            element.drop_tree()
    return element_text(content)


def _prose(path: Path) -> str:
    """Return the paragraphs of a page in reStructuredText, without directives and code."""
    text = path.read_text(encoding="utf-8").split(".. seealso::")[0]
    text = re.sub(r"^\.\. .*\n(?:[ \t]+.*\n|\n(?=[ \t]))*", "", text, flags=re.M)
    text = re.sub(r"^([=\-~^*+#])\1+$", "", text, flags=re.M)
    return re.sub(r":\w+:`~?([^`<]*)(?:<[^>]*>)?`", r"\1", text).replace("``", "").strip()


def translations(source: Path) -> Corpus:
    """Parts of epics by several translators; the same part by another one is relevant."""
    corpus = Corpus()
    groups: dict[str, list[str]] = defaultdict(list)

    def add(work: str, translator: str, part: int, text: str) -> None:
        name = f"{translator}/{work}/{part}"
        if corpus.add(name, text):
            groups[f"{work}/{part}"].append(name)

    for work in ("inferno", "purgatorio", "paradiso"):
        for translator in ("longfellow", "cary", "norton"):
            page = source / "crossdante/src/js" / work / "translations" / f"{translator}.js"
            cantos = page.read_text(encoding="utf-8").split('class="cantohead"')[1:]
            for number, canto in enumerate(cantos, start=1):
                add(work, translator, number, _plain_verse(canto))
    for work, translator, file in _HOMER:
        path = next((source / "mythic-library/texts/greek").glob(f"{work}/downloads/{file}*"))
        text = path.read_text(encoding="utf-8").split("*** END OF")[0]
        books = re.split(r"^BOOK [IVX]+\.?$", text, flags=re.M)[-24:]  # the first are contents
        for number, book in enumerate(books, start=1):
            add(work, translator, number, re.sub(r"^\[\d+\].*|\[\w+\]", "", book, flags=re.M))
    corpus.relate(groups.values(), lambda name: name.split("/")[0])
    return corpus


_HOMER = (
    ("the-iliad", "butler", "pg2199"),
    ("the-iliad", "pope", "pg6130"),
    ("the-odyssey", "butler", "pg1727"),
    ("the-odyssey", "pope", "pg3160"),
)


def _plain_verse(markup: str) -> str:
    text = re.sub(r'^>[^<]*</p>|<p class="summary">.*?</p>|\{\{\d+\}\}', "", markup)
    text = re.sub(r"</p>|</div>", "\n", text).split("`,")[0]
    return re.sub(r"\s*\n\s*", "\n", html.unescape(re.sub(r"<[^>]+>", "", text))).strip()


def genres(source: Path) -> Corpus:
    """The texts of the Brown corpus; relevant are those of the same genre."""
    corpus = Corpus()
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    with zipfile.ZipFile(source) as archive:
        for line in archive.read("brown/cats.txt").decode().split("\n"):
            if line.strip():
                name, genre = line.split()
                tagged = archive.read(f"brown/{name}").decode().split()
                text = " ".join(token.rsplit("/", 1)[0] for token in tagged)
                groups[genre].append((name, text))
    rng = random.Random(_SEED)
    for genre, members in groups.items():
        for name, text in rng.sample(members, min(CLASS_DOCUMENTS, len(members))):
            corpus.add(f"{genre}/{name}", text)
    corpus.relate([[f"{g}/{n}" for n, _ in members] for g, members in groups.items()], str)
    return corpus


def part(source: Path) -> Corpus:
    """Part of a corpus: queries of `valid` and `test`, their relevant documents, and others."""
    judged = read_qrels(source / "qrels.tsv")
    splits = read_splits(source / "splits.tsv")
    known = {d.id: d for d in read_corpus(source / "corpus.jsonl.gz") if isinstance(d, Document)}
    rng = random.Random(_SEED)
    queries = [
        q for q in known if splits.get(q) in ("valid", "test") and len(judged.get(q, ())) > 1
    ]
    chosen: set[str] = set()
    for query in rng.sample(queries, len(queries)):
        if len(chosen) < LIMIT * 3 // 4:
            chosen |= {query, *(name for name in judged[query] if name in known)}
    others = [name for name in known if name not in chosen]
    chosen |= set(rng.sample(others, min(len(others), max(0, LIMIT - len(chosen)))))
    corpus = Corpus({n: (d.title, d.text) for n, d in known.items() if n in chosen})
    for query in queries:
        found = {name: rel for name, rel in judged[query].items() if name in chosen}
        if query in chosen and len(found) >= 2:
            corpus.judgements[query] = found
    return corpus


KINDS: dict[str, Callable[[Path], Corpus]] = {
    kind.__name__: kind for kind in (manuals, sections, info, guides, translations, genres, part)
}
KINDS |= {f"translated-{code}": partial(translated, code=code) for code in _LANGUAGES}
KINDS |= {
    f"twins-{code}": partial(translated, code=code, twins=True)
    for code in _LANGUAGES
    if code != "en"
}


def main(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.")],
    source: Annotated[Path, typer.Argument(help="The packages or checkouts.")],
    output: Annotated[Path, typer.Argument(help="The folder to write.")],
) -> None:
    """Build a corpus."""
    if kind not in KINDS:
        raise CorpusError(f"KIND: {kind!r} is none of {', '.join(KINDS)}")
    typer.echo(write(KINDS[kind](source), output))


if __name__ == "__main__":
    typer.run(main)
