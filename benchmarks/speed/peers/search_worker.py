"""Runs a search engine for `benchmarks.speed.peers.search`, under the Python that has it.

Started as a script: `python search_worker.py ENGINE CORPUS`; the corpus is JSON Lines of id and
text. Imports nothing of Longmatch. The first line of the answer says the versions and the seconds
of indexing. After it, each line of standard input is {"by": "text" or "id", "queries": […]}, and
each line of the answer {"seconds": […], "ids": [[…]]}, of the ten best of each.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

K = 10
MOST_TERMS = 64  # of a query of Tantivy's "more like this"
WORDS = re.compile(r"\w+")

Search = Callable[[str], list[str]]  # a text, or an id -> the ids of the best, best first


def open_bm25s(ids: list[str], texts: list[str], backend: str) -> dict[str, Search]:
    """Index texts by bm25s, with Lucene's variant of BM25, its stop words and a stemmer."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")

    def tokenise(some: list[str]) -> Any:
        return bm25s.tokenize(some, stopwords="en", stemmer=stemmer, show_progress=False)

    index = bm25s.BM25(method="lucene", backend=backend)
    index.index(tokenise(texts), show_progress=False)
    text_of = dict(zip(ids, texts, strict=True))
    stored: dict[str, Any] = {}

    def search(tokens: Any, k: int = K) -> list[str]:
        found, _ = index.retrieve(tokens, k=k, show_progress=False, n_threads=1)
        return [ids[row] for row in found[0].tolist()]

    def by_id(name: str) -> list[str]:
        if name not in stored:
            stored[name] = tokenise([text_of[name]])
        return [one for one in search(stored[name], K + 1) if one != name][:K]

    return {"text": lambda text: search(tokenise([text])), "id": by_id}


def open_tantivy(ids: list[str], texts: list[str], way: str) -> dict[str, Search]:
    """Index texts by Tantivy; a query is all words of a text, or its `MOST_TERMS` heaviest."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("body", stored=True, tokenizer_name="en_stem")
    schema = builder.build()
    index = tantivy.Index(schema)
    writer = index.writer(num_threads=1)
    for name, text in zip(ids, texts, strict=True):
        writer.add_document(tantivy.Document(id=name, body=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def find(query: Any, k: int = K) -> list[str]:
        hits = searcher.search(query, k).hits
        return [searcher.doc(address)["id"][0] for _, address in hits]

    def words(text: str, k: int = K) -> list[str]:
        distinct = " ".join(dict.fromkeys(WORDS.findall(text.lower())))  # NOT would be an operator
        return find(index.parse_query_lenient(distinct, ["body"])[0], k)

    text_of = dict(zip(ids, texts, strict=True))
    limits = {"max_query_terms": MOST_TERMS, "min_doc_frequency": 1, "min_term_frequency": 1}

    def more_like(name: str) -> list[str]:
        ((_, address),) = searcher.search(tantivy.Query.term_query(schema, "id", name), 1).hits
        found = find(tantivy.Query.more_like_this_query(address, **limits), K + 1)
        return [one for one in found if one != name][:K]

    if way == "more":
        return {"id": more_like}
    return {
        "text": words,
        "id": lambda name: [one for one in words(text_of[name], K + 1) if one != name][:K],
    }


OPEN: dict[str, Callable[[list[str], list[str]], dict[str, Search]]] = {
    "bm25s": lambda ids, texts: open_bm25s(ids, texts, "numpy"),
    "bm25s, numba": lambda ids, texts: open_bm25s(ids, texts, "numba"),
    "Tantivy, all words": lambda ids, texts: open_tantivy(ids, texts, "all"),
    "Tantivy, more like this": lambda ids, texts: open_tantivy(ids, texts, "more"),
}
PACKAGE = {"bm25s": "bm25s", "bm25s, numba": "bm25s"}


def main(name: str, corpus: str) -> None:
    """Index a corpus, then answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    lines = [json.loads(line) for line in Path(corpus).read_text(encoding="utf-8").splitlines()]
    started = time.perf_counter()
    ways = OPEN[name]([one["id"] for one in lines], [one["text"] for one in lines])
    indexing = time.perf_counter() - started
    package = PACKAGE.get(name, "tantivy")
    first = {"indexing": indexing, "ways": list(ways), "versions": {package: version(package)}}
    answers.write(json.dumps(first) + "\n")
    answers.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        taken, found = [], []
        for query in asked["queries"]:
            started = time.perf_counter()
            found.append(ways[asked["by"]](query))
            taken.append(time.perf_counter() - started)
        answers.write(json.dumps({"seconds": taken, "ids": found}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
