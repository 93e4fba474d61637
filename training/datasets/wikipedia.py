"""Wikipedia: articles with their outgoing links; pairs by link similarity, or those of GWikiMatch.

Wiki65K (SMITH, section 5.1.1) and WIKI (CoLDE, section 4.1.1): two articles match if the Jaccard
similarity of their outgoing links is over 0.5.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from index.corpus.formats.html import parse_markup
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.datasets.dataset import TENTHS, DataSet, make_document
from training.datasets.lines import (
    files_below,
    read_objects,
    require_files,
    require_folder,
    text_field,
)
from training.datasets.pairs import (
    add_negatives,
    divide,
    paired_ids,
    read_pair_lists,
    without_missing,
)
from training.datasets.similarity_join import similar_sets

SIMILAR = 0.5  # a Jaccard similarity over it is a match
_PAGE = re.compile(r"/wiki/(.+)")
_ARTICLES = ("*.jsonl", "*.jsonl.gz", "*.json", "wiki_[0-9]*")


@dataclass(frozen=True, slots=True)
class Article:
    """An article.

    Attributes:
        title: unique; also its id.
        document: of it.
        links: titles of the articles that it links to, without itself.
    """

    title: str
    document: Document
    links: frozenset[str]


def check_articles(source: Path) -> None:
    """Check that there are files of articles.

    Raises:
        CorpusError: there is none.
    """
    require_folder(source)
    require_files(files_below(source, *_ARTICLES), source, "file of articles (*.jsonl, wiki_00)")


def check_gwikimatch(source: Path) -> None:
    """Check that there are articles, and lists of pairs.

    Raises:
        CorpusError: something is missing.
    """
    check_articles(source)
    require_files(sorted(source.glob("*.tsv")), source, "list of pairs *.tsv")


def read_gwikimatch(source: Path, progress: Progress) -> DataSet:
    """Read the pairs of GWikiMatch, lines of label and two addresses, with the texts of a dump.

    Raises:
        CorpusError: a file is missing; a line has other columns or another label; or the articles
            are not those of the pairs.
    """
    check_gwikimatch(source)
    listed = read_pair_lists(sorted(source.glob("*.tsv")), source, title_of)
    named = paired_ids(listed)
    articles = {
        article.title: article.document
        for article in _read_articles(source, progress)
        if article.title in named
    }
    left_out: Counter[str] = Counter()
    pairs = without_missing(listed, articles, left_out)
    kept = paired_ids(pairs)
    return DataSet([articles[title] for title in sorted(kept)], pairs, left_out=left_out)


def read_similar_articles(source: Path, seed: int, progress: Progress) -> DataSet:
    """Read articles, and make pairs of them by the Jaccard similarity of their links.

    Of a matching pair the article with the smaller title is the source, and an article that the
    source links to and does not match makes a negative pair. Only articles of pairs are kept.

    Raises:
        CorpusError: a line is no article, or no two articles match.
    """
    check_articles(source)
    articles = {article.title: article for article in _read_articles(source, progress)}
    links = {title: article.links for title, article in articles.items()}
    progress.started("comparing links", len(links), unit="articles")
    similar: list[tuple[str, str]] = []
    for title, others in similar_sets(links, SIMILAR):
        progress.advanced(1)
        similar += [(min(title, other), max(title, other)) for other in others]
    if not similar:
        raise CorpusError(f"{source}: no two articles have a link similarity over {SIMILAR}")
    pairs, missing = add_negatives(
        sorted(similar), lambda title: sorted(links[title] & articles.keys()), seed
    )
    divided = divide(pairs, TENTHS, seed)
    left_out = {
        "matching pairs without a negative one": missing,
        "articles without a pair": len(articles) - len(paired_ids(divided)),
    }
    kept = [articles[title].document for title in sorted(paired_ids(divided))]
    return DataSet(kept, divided, left_out=left_out)


def title_of(address: str) -> str:
    """Return the title of an article that has this address, or is named so by a link."""
    path = urlsplit(address).path if "://" in address else address
    page = _PAGE.search(path)
    title = unquote(page[1] if page else path.partition("#")[0]).replace("_", " ").strip()
    return title[:1].upper() + title[1:]


def _read_articles(source: Path, progress: Progress) -> Iterator[Article]:
    progress.started("reading articles", None, unit="articles")
    seen: dict[str, str] = {}
    for where, record in read_objects(files_below(source, *_ARTICLES)):
        progress.advanced(1)
        article = _read_article(where, record)
        if article is None:
            continue
        first = seen.setdefault(article.title, where)
        if first != where:
            raise CorpusError(f"{where}: the article {article.title!r} is already at {first}")
        yield article


def _read_article(where: str, record: Mapping[str, Any]) -> Article | None:
    """Read an article with the field `links`, or with its links in the text; None if empty."""
    fields = dict(record)
    title, text = text_field(fields, "title", where), text_field(fields, "text", where)
    given = fields.get("links")
    if given is None:
        page = parse_markup(text)  # of WikiExtractor with --links
        given = [anchor.get("href") for anchor in page.iterfind(".//a[@href]")]
        text = page.text_content()
    elif not isinstance(given, list) or not all(isinstance(link, str) for link in given):
        raise CorpusError(f"{where}: links: is not a list of titles")
    if not text.strip():
        return None  # a redirection
    own = title_of(title)
    metadata = {"url": fields["url"]} if isinstance(fields.get("url"), str) else {}
    document = make_document(where, own, text, title, metadata)
    links = frozenset(title_of(link) for link in given)
    return Article(own, document, links - {own, ""})
