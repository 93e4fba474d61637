"""A collection of TREC: documents in SGML-like files, topics, and judgements.

Markup differs between collections. What is common to them is read: `<DOC>`, `<DOCNO>`, and the
elements of a title and of text; entities that HTML does not have stay as they are.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from index.corpus.formats.content import shorten
from index.corpus.formats.html import element_text, parse_markup
from index.document import Document, SkippedInput
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet
from training.datasets.dataset import make_document
from training.datasets.lines import files_below, read_judgements, require_files

DOCUMENTS, TOPICS, QRELS = "documents", "topics*", "qrels*"
_NUMBER = re.compile(r"<DOCNO>\s*(.*?)\s*</DOCNO>", re.I | re.S)
_TITLES = ("headline", "title", "ttl", "hl", "ti")
_HEAD_TAG = re.compile(r"(</?)head(?=\s*>)", re.I)  # a headline, too; to HTML the head of a page
_HEADS = ("docno", "docid", "docoldno", "dochdr")
_TOPIC = re.compile(r"<top>(.*?)</top>", re.I | re.S)
_FIELD = re.compile(r"<(num|title|desc|narr)>", re.I)
_LABELS = re.compile(r"^\s*(?:Number|Topic|Description|Narrative)\s*:", re.I)
_MOST_CHARACTERS = 64 * 2**20  # of a document


def read_collection(source: Path, progress: Progress) -> DataSet:
    """Read a collection: the folder `documents`, files `topics*` and `qrels*`.

    The text of a query is title, description and narrative of its topic. A document without text is
    skipped and reported.
    """
    documents = files_below(source / DOCUMENTS, "*")
    for path in require_files(documents, source / DOCUMENTS, "file of documents"):
        if path.suffix in (".Z", ".z", ".bz2", ".zip"):
            raise CorpusError(f"{path}: is compressed: expand it, or use gzip")
    topic_files = require_files(_files(source, TOPICS), source, f"file {TOPICS}")
    judged = read_judgements(_files(source, QRELS), source, f"file {QRELS}")
    names = {query for _, query, _ in judged}
    topics = {topic.id: topic for path in topic_files for topic in _read_topics(path)}
    missing = names - topics.keys()
    if missing:
        raise CorpusError(f"{topic_files[0]}: has no topic {min(missing)!r}, which is judged")
    return DataSet(
        _read_documents(documents, progress),
        judgements=[(query, name, grade) for _, query, of in judged for name, grade in of.items()],
        queries=[topic for name, topic in topics.items() if name in names],
    )


def _files(source: Path, pattern: str) -> list[Path]:
    return sorted(path for path in source.glob(pattern) if path.is_file())


def _read_topics(path: Path) -> Iterator[Document]:
    some = False
    for topic in _TOPIC.finditer(_decode(path.read_bytes())):
        pieces = _FIELD.split(topic[1])
        fields = {
            name.lower(): " ".join(_LABELS.sub("", value.split("</")[0]).split())
            for name, value in zip(pieces[1::2], pieces[2::2], strict=True)
        }
        number = fields.get("num", "")
        if not number:
            raise CorpusError(f"{path}: a topic has no <num>")
        # Numbers below 100 are padded in some topics, and in no judgements.
        name = number.lstrip("0") if number.isdecimal() else number
        texts = [fields[field] for field in ("title", "desc", "narr") if fields.get(field)]
        where = f"{path}: topic {name}"
        yield make_document(where, name, "\n\n".join(texts), fields.get("title", ""))
        some = True
    if not some:
        raise CorpusError(f"{path}: holds no <top> … </top>")


def _read_documents(paths: Sequence[Path], progress: Progress) -> Iterator[Document]:
    progress.started("reading documents", None)
    seen: set[str] = set()
    for path in paths:
        some = False
        for where, markup in _split(path):
            progress.advanced(1)
            some = True
            document = _read_document(where, markup)
            if document is None:
                progress.skipped(SkippedInput(where, "the document has no text"))
            elif document.id in seen:
                raise CorpusError(f"{where}: the document {document.id!r} already occurs")
            else:
                seen.add(document.id)
                yield document
        if not some:
            raise CorpusError(f"{path}: holds no <DOC> … </DOC>")


def _split(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each document of a file with the line where it begins."""
    lines: list[str] = []
    begin = size = 0
    for number, raw in enumerate(_raw_lines(path), start=1):
        line = _decode(raw)
        tag = line.strip().lower()
        if tag.startswith("<doc>"):
            if begin:
                raise CorpusError(f"{path}:{number}: <DOC> before the </DOC> of line {begin}")
            lines, begin, size = [], number, 0
        if begin:
            lines.append(line)
            size += len(line)
            if size > _MOST_CHARACTERS:
                raise CorpusError(f"{path}:{begin}: is longer than {_MOST_CHARACTERS} characters")
        if begin and tag.endswith("</doc>"):
            yield f"{path}:{begin}", "".join(lines)
            begin = 0
    if begin:
        raise CorpusError(f"{path}:{begin}: <DOC> has no </DOC>")


def _raw_lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"{path}: is damaged or cut off") from error


def _decode(raw: bytes) -> str:
    """Return text of UTF-8, or else of ISO 8859-1, which the older collections have."""
    try:
        return raw.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _read_document(where: str, markup: str) -> Document | None:
    number = _NUMBER.search(markup)
    if not number or not number[1]:
        raise CorpusError(f"{where}: has no <DOCNO>")
    page = parse_markup(_HEAD_TAG.sub(r"\1headline", markup))
    for head in list(page.iter(*_HEADS)):
        head.drop_tree()
    titles = (page.find(f".//{name}") for name in _TITLES)
    title = next((shorten(element.text_content()) for element in titles if element is not None), "")
    text = element_text(page)
    return make_document(where, number[1], text, title) if text else None
