"""Wikipedia: articles with their outgoing links, paired by link similarity.

Wiki65K (SMITH, section 5.1.1) and WIKI (CoLDE, section 4.1.1): two articles match if the Jaccard
similarity of their outgoing links is over 0.5. Two sets can only be so similar if one of the rarest
elements of each is common to both; these prefixes are enough to find all pairs (Bayardo et al.,
"Scaling up all pairs similarity search", 2007).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from index.corpus.formats.html import parse_markup
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet
from training.datasets.dataset import (
    TENTHS,
    add_negatives,
    divide,
    make_document,
    paired_ids,
)
from training.datasets.lines import (
    files_below,
    read_objects,
    require_files,
    text_field,
)

SIMILAR = 0.5  # a Jaccard similarity over it is a match
_ARTICLES = ("*.jsonl", "*.jsonl.gz", "*.json", "wiki_[0-9]*")


class Article(NamedTuple):
    """The document of an article, by its title, and the titles of others that it links to."""

    document: Document
    links: frozenset[str]


def read_similar_articles(source: Path, progress: Progress) -> DataSet:
    """Read articles, and make pairs of them by the Jaccard similarity of their links.

    Of a matching pair the article with the smaller title is the source, and an article that the
    source links to and does not match makes a negative pair. Only articles of pairs are kept.
    """
    paths = files_below(source, *_ARTICLES)
    require_files(paths, source, "file of articles (*.jsonl, wiki_00)")
    articles = {article.document.id: article for article in _read_articles(paths, progress)}
    links = {title: article.links for title, article in articles.items()}
    progress.started("comparing links", len(links), unit="articles")
    similar: list[tuple[str, str]] = []
    for title, others in similar_sets(links, SIMILAR):
        progress.advanced(1)
        similar += [(min(title, other), max(title, other)) for other in others]
    if not similar:
        raise CorpusError(f"{source}: no two articles have a link similarity over {SIMILAR}")
    pairs, missing = add_negatives(
        sorted(similar), lambda title: sorted(links[title] & articles.keys())
    )
    divided = divide(pairs, TENTHS)
    left_out = {
        "matching pairs without a negative one": missing,
        "articles without a pair": len(articles) - len(paired_ids(divided)),
    }
    kept = [articles[title].document for title in sorted(paired_ids(divided))]
    return DataSet(kept, divided, left_out=left_out)


def similar_sets(
    sets: Mapping[str, frozenset[str]], over: float
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each name with the names of earlier sets whose Jaccard similarity is over `over`.

    Args:
        sets: by name; an empty one is similar to none.
        over: at least 0 and below 1.
    """
    counts = Counter(element for elements in sets.values() for element in elements)
    having: dict[str, list[str]] = defaultdict(list)
    for name in sorted(sets, key=lambda name: (len(sets[name]), name)):
        elements = sets[name]
        candidates: dict[str, None] = {}
        for element in _prefix(elements, counts, over):
            candidates.update(dict.fromkeys(having[element]))
            having[element].append(name)
        yield name, tuple(other for other in candidates if jaccard(elements, sets[other]) > over)


def jaccard(first: frozenset[str], other: frozenset[str]) -> float:
    """Return |both| / |either|; 0 for two empty sets."""
    both = len(first & other)
    either = len(first) + len(other) - both
    return both / either if either else 0.0


def title_of(link: str) -> str:
    """Return the title of the article that a link names."""
    title = unquote(link.partition("#")[0]).replace("_", " ").strip()
    return title[:1].upper() + title[1:]


def _read_articles(paths: Sequence[Path], progress: Progress) -> Iterator[Article]:
    progress.started("reading articles", None, unit="articles")
    seen: dict[str, str] = {}
    for where, record in read_objects(paths):
        progress.advanced(1)
        article = _read_article(where, record)
        if article is None:
            continue
        title = article.document.id
        first = seen.setdefault(title, where)
        if first != where:
            raise CorpusError(f"{where}: the article {title!r} is already at {first}")
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
    name = title_of(title)
    metadata = {"url": fields["url"]} if isinstance(fields.get("url"), str) else {}
    document = make_document(where, name, text, title, metadata)
    links = frozenset(title_of(link) for link in given)
    return Article(document, links - {name, ""})


def _prefix(elements: frozenset[str], counts: Mapping[str, int], over: float) -> Sequence[str]:
    """Return the rarest elements of a set: so many that the others alone are not enough."""
    order = sorted(elements, key=lambda element: (counts[element], element))
    return order[: len(order) - math.ceil(over * len(order)) + 1]
