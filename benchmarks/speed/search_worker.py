"""Runs bm25s or Tantivy for `benchmarks.speed.peers.search`, under the Python that has it.

Started as a module: `python -m benchmarks.speed.peers.search_worker ENGINE CORPUS`.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.speed.peers.answers import MOST, Corpus, Way, serve

MOST_TERMS = 64  # of a query of Tantivy's "more like this"
WORDS = re.compile(r"\w+")


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
