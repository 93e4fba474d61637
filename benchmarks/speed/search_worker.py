"""Runs bm25s or Tantivy for `benchmarks.speed.search_peers`, under the Python that has it.

    python -m benchmarks.speed.search_worker ENGINE CORPUS

Imports nothing of Longmatch. The first line of the answer says the versions, the ways to ask and
the seconds of indexing. After it, each line of standard input is {"by": a way, "queries": […]}, and
each line of the answer {"seconds": […], "ids": [[…]]}, of the eleven best of each: a stored
document is among what its text finds.
"""

import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

K = 10
MOST = K + 1  # of an answer
MOST_TERMS = 64  # of a query of Tantivy's "more like this"
WORDS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to ask an engine.

    Attributes:
        find: what `prepare` returns -> the ids of the best, best first. This is timed.
        prepare: a text, or the id of a stored document -> the query. An engine may have this of
            its documents, and it is not timed.
    """

    find: Callable[[Any], list[str]]
    prepare: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True)
class Corpus:
    """What an engine indexes."""

    ids: list[str]
    texts: list[str]

    @property
    def text_of(self) -> dict[str, str]:
        """The texts by id."""
        return dict(zip(self.ids, self.texts, strict=True))


def serve(path: str, make: Callable[[Corpus], Mapping[str, Way]], packages: Sequence[str]) -> None:
    """Index a corpus, JSON Lines of id and text; answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    corpus = Corpus([line["id"] for line in lines], [line["text"] for line in lines])
    del lines
    started = time.perf_counter()
    ways = make(corpus)
    first = {
        "indexing": time.perf_counter() - started,
        "ways": list(ways),
        "versions": {package: version(package) for package in packages},
    }
    gc.collect()
    gc.freeze()  # an index of Python objects would be looked through again and again
    answers.write(json.dumps(first) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(_answer(ways, json.loads(line))) + "\n")
        answers.flush()


def _answer(ways: Mapping[str, Way], request: Mapping[str, Any]) -> dict[str, Any]:
    way, seconds, ids = ways[request["by"]], [], []
    for text in request["queries"]:
        query = way.prepare(text)
        started = time.perf_counter()
        found = way.find(query)
        seconds.append(time.perf_counter() - started)
        ids.append(found)
    return {"seconds": seconds, "ids": ids}


def open_bm25s(corpus: Corpus, backend: str) -> dict[str, Way]:
    """Index texts by bm25s, with Lucene's variant of BM25, its stop words and a stemmer."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")

    def tokenise(*texts: str) -> Any:
        return bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False)

    index = bm25s.BM25(method="lucene", backend=backend)
    index.index(tokenise(*corpus.texts), show_progress=False)
    text_of = corpus.text_of

    def search(tokens: Any) -> list[str]:
        found, _ = index.retrieve(tokens, k=MOST, show_progress=False, n_threads=1)
        return [corpus.ids[row] for row in found[0].tolist()]

    return {
        "text": Way(lambda text: search(tokenise(text))),
        "id": Way(search, lambda name: tokenise(text_of[name])),
    }


def open_tantivy(corpus: Corpus, way: str) -> dict[str, Way]:
    """Index texts by Tantivy; a query is all words of a text, or its `MOST_TERMS` heaviest."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("body", stored=True, tokenizer_name="en_stem")
    schema = builder.build()
    index = tantivy.Index(schema)
    writer = index.writer(num_threads=1)
    for name, text in zip(corpus.ids, corpus.texts, strict=True):
        writer.add_document(tantivy.Document(id=name, body=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    text_of = corpus.text_of

    def find(query: Any) -> list[str]:
        hits = searcher.search(query, MOST).hits
        return [searcher.doc(address)["id"][0] for _, address in hits]

    def parse(text: str) -> Any:
        distinct = " ".join(dict.fromkeys(WORDS.findall(text.lower())))  # NOT would be an operator
        return index.parse_query_lenient(distinct, ["body"])[0]

    limits = {"max_query_terms": MOST_TERMS, "min_doc_frequency": 1, "min_term_frequency": 1}

    def more_like(name: str) -> list[str]:
        ((_, address),) = searcher.search(tantivy.Query.term_query(schema, "id", name), 1).hits
        return find(tantivy.Query.more_like_this_query(address, **limits))

    if way == "more":
        return {"id": Way(more_like)}
    return {
        "text": Way(lambda text: find(parse(text))),
        "id": Way(find, lambda name: parse(text_of[name])),
    }


OPEN: dict[str, tuple[str, Callable[[Corpus], dict[str, Way]]]] = {
    "bm25s": ("bm25s", partial(open_bm25s, backend="numpy")),
    "bm25s, numba": ("bm25s", partial(open_bm25s, backend="numba")),
    "Tantivy, all words": ("tantivy", partial(open_tantivy, way="all")),
    "Tantivy, more like this": ("tantivy", partial(open_tantivy, way="more")),
}


if __name__ == "__main__":
    package, opening = OPEN[sys.argv[1]]
    serve(sys.argv[2], opening, [package])
