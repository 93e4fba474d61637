"""Runs Milvus Lite for `benchmarks.speed.peers.search`.

Started as a module: `python -m benchmarks.speed.peers.milvus_worker COLLECTION CORPUS`. It is asked
as its users ask it, by pymilvus, which talks to it over a TCP port of this process. A collection is
searched only once it was written to the disk, has its index, and was loaded: Milvus Lite compares
all vectors of what it has in memory, whatever index was asked for. An option of an index is
passed as `params` within `params`: alone, pymilvus flattens it, and Milvus Lite does not read it.
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bm25s.stopwords import STOPWORDS_EN
from pymilvus import (
    AnnSearchRequest,
    DataType,
    Function,
    FunctionType,
    MilvusClient,
    RRFRanker,
    WeightedRanker,
)

from benchmarks.speed.peers.answers import MOST, Corpus, Way, serve

NAME = "corpus"
ROWS_A_REQUEST = 500
VECTORS_A_LIST = 39  # the fewest to train a list by, as FAISS warns
VISITED = (4, 8, 16, 32)  # lists
KEPT = (16, 32, 64, 128)  # candidates of a search in the graph
GRAPH = {"M": 16, "efConstruction": 200}
BM25 = {"bm25_k1": 3.0, "bm25_b": 1.0}  # the best of 1.5 or 3 and 0.75 or 1, validation queries
HEAVIEST = 64  # words of a query
CANDIDATES = 100  # of each half of a hybrid search
RRF = (2, 10, 60)
WEIGHTS = (0.004, 0.008, 0.016, 0.03, 0.06, 0.125, 0.25)  # of the words; the vector has 1
WORDS = re.compile(r"\w+")  # as its standard analyzer
STOPPED = frozenset(STOPWORDS_EN)
# pymilvus pings every ten seconds; Milvus Lite hangs up on many, and what it is asked then fails.
_WITHOUT_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1}

Index = tuple[str, str, dict[str, Any]]  # kind, metric, options


def open_vectors(client: Any, corpus: Corpus, kind: str) -> dict[str, Way]:
    """Index vectors in lists or in a graph; a way for each number of what a search looks at."""
    lists = max(1, len(corpus.ids) // VECTORS_A_LIST)
    made, option, numbers = (
        ({"nlist": lists}, "nprobe", VISITED) if kind == "IVF_FLAT" else (GRAPH, "ef", KEPT)
    )
    fill(client, corpus, {"vector": (kind, "COSINE", made)})
    row_of = {name: row for row, name in enumerate(corpus.ids)}

    def way(number: int) -> Way:
        tuned = {"metric_type": "COSINE", "params": {option: number}}

        def find(vector: list[float]) -> list[str]:
            found = client.search(
                NAME,
                [vector],
                anns_field="vector",
                limit=MOST,
                output_fields=["id"],
                search_params=tuned,
            )
            return named(found, corpus)

        return Way(find, lambda name: corpus.vectors[row_of[name]])

    return {f"{option} {number}": way(number) for number in numbers}


def open_both(client: Any, corpus: Corpus) -> dict[str, Way]:
    """Index vectors and texts, for its BM25 and its hybrid search."""
    indexes: dict[str, Index] = {
        "vector": ("HNSW", "COSINE", GRAPH),
        "words": ("SPARSE_INVERTED_INDEX", "BM25", BM25),
    }
    fill(client, corpus, indexes)
    read = QueryReader(corpus)
    ask_vector = {"metric_type": "COSINE", "params": {"ef": CANDIDATES}}
    ask_words = {"metric_type": "BM25"}
    shown = {"limit": MOST, "output_fields": ["id"]}

    def by_words(query: "Query") -> list[str]:
        found = client.search(
            NAME, [query.text], anns_field="words", search_params=ask_words, **shown
        )
        return named(found, corpus)

    def hybrid(ranker: Callable[["Query"], Any]) -> Callable[["Query"], list[str]]:
        def find(query: "Query") -> list[str]:
            halves = [
                AnnSearchRequest([query.vector], "vector", ask_vector, limit=CANDIDATES),
                AnnSearchRequest([query.text], "words", ask_words, limit=CANDIDATES),
            ]
            found = client.hybrid_search(NAME, halves, ranker=ranker(query), **shown)
            return named(found, corpus)

        return find

    def weighted(weight: float) -> Callable[["Query"], Any]:
        # BM25 grows with the query, and what else Milvus offers, its arc tangent, is 1 for all.
        return lambda query: WeightedRanker(1.0, weight / query.weight, norm_score=False)

    ways = {"": by_words}
    ways |= {f"RRF, k {k}": hybrid(lambda _, k=k: RRFRanker(k)) for k in RRF}
    ways |= {f"weight {weight:g}": hybrid(weighted(weight)) for weight in WEIGHTS}
    prepared = {f"{HEAVIEST} words": read.heaviest, "all words": read.all}
    return {
        f"{which}, {name}" if name else which: Way(find, prepare)
        for which, prepare in prepared.items()
        for name, find in ways.items()
    }


@dataclass(frozen=True, slots=True)
class Query:
    """A stored document as a query: its vector, a text, and the sum of the weights of its words."""

    vector: list[float]
    text: str
    weight: float


class QueryReader:
    """Makes queries of stored documents, all of their words or the heaviest by tf-idf."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._row_of = {name: row for row, name in enumerate(corpus.ids)}
        self._documents: Counter[str] | None = None

    def all(self, name: str) -> Query:
        """Return the whole text as a query."""
        return self._query(name, self._text(name), self._weights(name))

    def heaviest(self, name: str) -> Query:
        """Return the heaviest words, each as often as in the text."""
        weights = self._weights(name)
        best = sorted(weights, key=lambda word: -weights[word])[:HEAVIEST]
        counts = Counter(_words(self._text(name)))
        text = " ".join(word for word in best for _ in range(counts[word]))
        return self._query(name, text, {word: weights[word] for word in best})

    def _query(self, name: str, text: str, weights: Mapping[str, float]) -> Query:
        return Query(self._corpus.vectors[self._row_of[name]], text, sum(weights.values()))

    def _weights(self, name: str) -> dict[str, float]:
        if self._documents is None:  # at the first query, which is not timed
            self._documents = Counter(
                word for text in self._corpus.texts for word in set(_words(text))
            )
        number, counts = len(self._corpus.ids), Counter(_words(self._text(name)))
        having = {word: self._documents[word] for word in counts}
        return {
            word: count * math.log((number - having[word] + 0.5) / (having[word] + 0.5) + 1.0)
            for word, count in counts.items()
        } or {"": 1.0}

    def _text(self, name: str) -> str:
        return self._corpus.texts[self._row_of[name]]


def _words(text: str) -> list[str]:
    return [one for one in WORDS.findall(text.lower()) if one not in STOPPED]


def fill(client: Any, corpus: Corpus, indexes: Mapping[str, Index]) -> None:
    """Make the collection of a corpus, with the texts if there is an index of words, and load it.

    Args:
        client: of Milvus Lite.
        corpus: with vectors.
        indexes: by field, "vector" or "words": kind, metric and options of its index.
    """
    texts = "words" in indexes
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=len(corpus.vectors[0]))
    if texts:
        stop = {"type": "stop", "stop_words": sorted(STOPPED)}
        schema.add_field(
            "text",
            DataType.VARCHAR,
            max_length=max(map(len, corpus.texts)),
            enable_analyzer=True,
            analyzer_params={"tokenizer": "standard", "filter": [stop]},
        )
        schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
        bm25 = Function("bm25", FunctionType.BM25, ["text"], ["words"])
        schema.add_function(bm25)
    client.create_collection(NAME, schema=schema)
    rows: list[dict[str, Any]] = [
        {"id": row, "vector": vector} | ({"text": corpus.texts[row]} if texts else {})
        for row, vector in enumerate(corpus.vectors)
    ]
    for start in range(0, len(rows), ROWS_A_REQUEST):
        client.insert(NAME, rows[start : start + ROWS_A_REQUEST])
    client.flush(NAME)
    for field, (kind, metric, options) in indexes.items():
        wanted = client.prepare_index_params()
        wanted.add_index(field, index_type=kind, metric_type=metric, params={"params": options})
        client.create_index(NAME, wanted)
        made = client.describe_index(NAME, field)["params"]
        if dict(made) != options:
            raise RuntimeError(f"the index of {field} was made with {made}, not with {options}")
    client.load_collection(NAME)


def named(found: Any, corpus: Corpus) -> list[str]:
    """Return the ids of the documents that one query found."""
    return [corpus.ids[hit["id"]] for hit in found[0]]


def main(kind: str, path: str) -> None:
    """Serve a corpus from a folder beside its file."""

    def make(corpus: Corpus) -> dict[str, Way]:
        folder = Path(path).with_name(f"{kind}.db")
        client = MilvusClient(str(folder), dedicated=True, grpc_options=_WITHOUT_PINGS)
        return open_both(client, corpus) if kind == "both" else open_vectors(client, corpus, kind)

    serve(path, make, ["milvus-lite", "pymilvus"])


if __name__ == "__main__":
    main(*sys.argv[1:])
