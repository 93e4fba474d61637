"""What does a search by words take in the process and in a Milvus, and is it the same search?

    python -m benchmarks.engines.words CORPUS
    python -m benchmarks.engines.words CORPUS --milvus milvus://HOST:19530

The same documents are stored twice: with the local copy of the words, and with the words in Milvus
Lite, or in the server that --milvus names (2.4 or later). Both are searched in the same rounds, in
lexical mode's own way, for stored documents and for texts that are not stored, which are counted
before. Times are by the clock, of one search per call: a Milvus works in threads or processes of
its own.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from index.store.ports import StoredWords
from index.vectors.milvus.connection import parse_milvus_url
from index.vectors.milvus.engine import open_milvus
from index.vectors.milvus.word_index import open_words
from threadpoolctl import threadpool_limits

from benchmarks.common import (
    Spread,
    commit,
    interleave,
    make_record,
    markdown_table,
    ratios,
    spread,
    write_record,
)
from encoder.blocks import Receipt
from index.corpus.reader import read_corpus
from index.document import Document
from index.lexical.lexical_index import LexicalIndex
from index.lexical.scoring import LexicalQuery
from index.store.document_store import SQLiteDocumentStore
from index.store.records import EncodedDocument

DOCUMENTS = 300
ROUNDS = 3
QUERIES_A_ROUND = 20  # stored documents, and as many texts
PUT_TOGETHER = 100
K = 10
LOCAL = "local"
KINDS = ("stored", "text")


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One engine in one round: seconds of the median search, and the ids found, by kind."""

    seconds: Mapping[str, float]
    found: Mapping[str, list[list[int]]]


def main(
    corpus: Annotated[Path, typer.Argument(exists=True, help="A file or folder of documents.")],
    documents: Annotated[int, typer.Option(min=50, help="How many are stored.")] = DOCUMENTS,
    milvus: Annotated[
        str | None, typer.Option(help="URL of a Milvus server; by default, Milvus Lite.")
    ] = None,
) -> None:
    """Measure searching by words and storing them in each engine."""
    source = commit()
    settings = {
        "corpus": corpus.resolve().parent.name if corpus.is_file() else corpus.resolve().name,
        "documents": documents,
        "threads": 1,
        "rounds": ROUNDS,
        "queries_a_round": QUERIES_A_ROUND,
        "k": K,
    }
    read = (one for one in read_corpus(corpus) if isinstance(one, Document))
    texts = list(islice(read, documents + ROUNDS * QUERIES_A_ROUND))
    with threadpool_limits(1):
        name = "engines-words-server" if milvus else "engines-words"
        record = make_record(name, source, settings, measure(texts, documents, milvus))
    typer.echo(table(record))
    write_record(record)


def measure(texts: Sequence[Document], stored: int, milvus: str | None) -> dict[str, Any]:
    """Measure both engines over the first of the texts; the others are queries."""
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        address = parse_milvus_url(milvus or f"milvus://{folder}/lite.db", words=True)
        engine = opened.enter_context(closing(open_milvus(address, Path(folder), read_only=False)))
        opened.callback(engine.words.drop_others)
        name = f"milvus {engine.connection.version}"
        in_milvus = partial(open_words, engine=engine.words, read_only=False)
        results: dict[str, Any] = {}
        runners = {}
        for one, words in ((LOCAL, LexicalIndex), (name, in_milvus)):
            path = Path(folder) / f"{one.split()[0]}.sqlite3"
            store = opened.enter_context(closing(_open(path, words)))
            started = time.perf_counter()
            numbers = _fill(store, texts[:stored])
            seconds = time.perf_counter() - started
            runners[one] = _runner(store, numbers, texts[stored:])
            runners[one](0)  # a Milvus Lite makes its index at the first search
            results[one] = {"store_seconds": seconds / stored}
        measured = interleave(runners, ROUNDS)
    for one, some in measured.items():
        for kind in KINDS:
            seconds_of = [each.seconds[kind] for each in some]
            base = [each.seconds[kind] for each in measured[LOCAL]]
            results[one][kind] = {
                "searching": asdict(spread(seconds_of)),
                "to_local": asdict(ratios(seconds_of, base)),
                "same_ten": _share_of_same(some, measured[LOCAL], kind),
            }
    return results


def _open(path: Path, words: Callable[..., StoredWords]) -> SQLiteDocumentStore:
    about = {"fingerprint": "0" * 64, "dimension": 1, "find_families": False}
    return SQLiteDocumentStore(path, **about, make_words=words)


def _fill(store: SQLiteDocumentStore, texts: Sequence[Document]) -> list[int]:
    """Store the documents, and publish; return their vector ids."""
    vector = np.ones(1, dtype=np.float32)
    numbers: list[int] = []
    for start in range(0, len(texts), PUT_TOGETHER):
        some = texts[start : start + PUT_TOGETHER]
        entries = [EncodedDocument(one, vector, Receipt(1, 1, 1, 0, 1)) for one in some]
        numbers += store.put(entries).added.tolist()
    store.lexical.publish()
    return numbers


def _runner(
    store: SQLiteDocumentStore, numbers: Sequence[int], texts: Sequence[Document]
) -> Callable[[int], RoundResult]:
    words = store.lexical
    chosen = np.random.default_rng(1).permutation(numbers).tolist()

    def timed(queries: Sequence[LexicalQuery]) -> tuple[float, list[list[int]]]:
        seconds, found = [], []
        for query in queries:
            started = time.perf_counter()
            hits = words.search(query, K)
            seconds.append(time.perf_counter() - started)
            found.append(hits.vector_ids.tolist())
        return median(seconds), found

    def run(number: int) -> RoundResult:
        rows = slice(number * QUERIES_A_ROUND, (number + 1) * QUERIES_A_ROUND)
        queries = {
            "stored": [words.read_stored(one) for one in (chosen * ROUNDS)[rows]],
            "text": [words.read(one.text, title=one.title) for one in texts[rows]],
        }
        measured = {kind: timed(some) for kind, some in queries.items()}
        return RoundResult(
            {kind: seconds for kind, (seconds, _) in measured.items()},
            {kind: found for kind, (_, found) in measured.items()},
        )

    return run


def _share_of_same(some: Sequence[RoundResult], base: Sequence[RoundResult], kind: str) -> float:
    """Return for which share of the searches the same documents come first, in the same order."""
    both = zip(some, base, strict=True)
    same = [a == b for x, y in both for a, b in zip(x.found[kind], y.found[kind], strict=True)]
    return float(np.mean(same))


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    return markdown_table(
        [
            *("words", "storing one, ms", "query", "search ms", "ratio to local"),
            "same first ten",
        ],
        [
            [
                name,
                1e3 * one["store_seconds"],
                kind,
                1e3 * one[kind]["searching"]["median"],
                Spread(**one[kind]["to_local"]),
                f"{one[kind]['same_ten']:.3f}",
            ]
            for name, one in record["results"].items()
            for kind in KINDS
        ],
    )


if __name__ == "__main__":
    typer.run(main)
