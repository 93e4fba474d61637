"""Searching by a whole document: how fast, and how well, beside other engines?

    python -m benchmarks.speed.peers.search --data DATA --python PYTHON_OF_PEERS --blocks KEPT

For each corpus with judgements, the test queries are whole documents. All engines have the same
texts, with their titles, the same document vectors, and one thread as far as they can be limited.
They answer in turns, a part of the queries each, so that a slow minute of the machine is
everybody's. Longmatch is searched in this process, the peers each in one of theirs: no HTTP on
either side. "by text" counts the words of a new text; "by id" searches for a stored document: what
a peer needs of it, such as its words or its vector, is made ready before the clock starts.

By words: bm25s (NumPy and numba), Tantivy, which gets all words of the document or chooses the
heaviest ("more like this"), and BM25 of Milvus Lite. By vectors and by both: Milvus Lite, whose
settings are those that are best on validation queries; these need the block vectors of the corpus
in `--blocks`, as `benchmarks.quality.retrieval` keeps them. A corpus that has none there is
searched by words alone. Each corpus is a record of its own.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from threadpoolctl import threadpool_limits

from benchmarks.common import Spread, commit, make_record, markdown_table, write_record
from benchmarks.quality.retrieval import KEPT_BLOCKS, CorpusPart, find_corpora
from benchmarks.quality.stored_corpus import stored_corpus, stored_queries, stored_words
from benchmarks.speed.peers.answers import K
from benchmarks.speed.peers.engine import Engine, ask_longmatch, open_process
from benchmarks.speed.peers.rounds import ROUNDS, Asked, choose, in_turns
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import IDS
from evaluation.judgements import read_qrels, read_splits
from index.corpus.reader import read_corpus
from index.directory.data_directory import DataDirectory
from index.document import Document
from index.search.fusion import read_fusion
from index.search.records import DEFAULT_ALIGNMENT, EncodedQuery, Mode
from index.search.spare_core import SPARE_CORE

BENCHMARK = "search-peers"  # and the name of the corpus
CORPORA = ("proposals", "proposals-part", "rfc", "wikispeedia")  # that there are results of
QUERIES, TO_CHOOSE_BY = 120, 60
_HERE = "benchmarks.speed.peers"


@dataclass(frozen=True, slots=True)
class Ours:
    """A row of ours: the mode, and whether candidates are aligned."""

    mode: Mode
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """A row of a peer.

    Attributes:
        worker: its process: module and argument.
        base: the row of ours that it is compared with.
        settings: of which the best is taken, the cheapest first; without, it has none.
        like: a row above, whose setting it takes, with all words: to try them would take minutes.
    """

    worker: tuple[str, str]
    base: str
    settings: tuple[str, ...] = ()
    like: str = ""


WORDS, VECTORS, BOTH = (
    "Longmatch, lexical",
    "Longmatch, semantic, not aligned",
    "Longmatch, hybrid, not aligned",
)
OURS = {
    WORDS: Ours("lexical"),
    VECTORS: Ours("semantic"),
    "Longmatch, semantic": Ours("semantic", aligned=True),
    BOTH: Ours("hybrid"),
    "Longmatch, hybrid": Ours("hybrid", aligned=True),
}
_WEIGHTS = ("0.004", "0.008", "0.016", "0.03", "0.06", "0.125", "0.25")
PEERS = {
    name: Peer(("search_worker", name), WORDS)
    for name in ("bm25s", "bm25s, numba", "Tantivy, all words", "Tantivy, more like this")
}
PEERS_BY_VECTORS = {
    "Milvus Lite, BM25": Peer(("milvus_worker", "both"), WORDS, ("all words",)),
    "Milvus Lite, BM25, heaviest": Peer(("milvus_worker", "both"), WORDS, ("64 words",)),
    "Milvus Lite, IVF_FLAT": Peer(
        ("milvus_worker", "IVF_FLAT"), VECTORS, tuple(f"nprobe {n}" for n in (4, 8, 16, 32))
    ),
    "Milvus Lite, HNSW": Peer(
        ("milvus_worker", "HNSW"), VECTORS, tuple(f"ef {n}" for n in (16, 32, 64, 128))
    ),
    "Milvus Lite, hybrid, RRF, heaviest": Peer(
        ("milvus_worker", "both"), BOTH, tuple(f"64 words, RRF, k {k}" for k in (2, 10, 60))
    ),
    "Milvus Lite, hybrid, weighted, heaviest": Peer(
        ("milvus_worker", "both"), BOTH, tuple(f"64 words, weight {w}" for w in _WEIGHTS)
    ),
    "Milvus Lite, hybrid, weighted": Peer(
        ("milvus_worker", "both"), BOTH, like="Milvus Lite, hybrid, weighted, heaviest"
    ),
}


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    python: Annotated[Path, typer.Option(help="A Python that has bm25s[core] and tantivy.")],
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")] = KEPT_BLOCKS,
    corpus: Annotated[str | None, typer.Option(help="Only the corpus of this name.")] = None,
) -> None:
    """Measure every engine on every corpus that has judgements."""
    source, encoder = commit(), OnnxEncoder(load_checkpoint(DEFAULT_CHECKPOINT), threads=1)
    SPARE_CORE.give_up()
    for part in find_corpora(data, "test"):
        name = part.folder.name
        if corpus not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack, threadpool_limits(1):
            comparison = Comparison(part, encoder, python, blocks / name, Path(folder), stack)
            results = comparison.measure()
        settings = {
            **{"split": "test", "rounds": ROUNDS, "k": K, "threads": 1},
            "versions": comparison.versions,
        }
        record = make_record(f"{BENCHMARK}-{name}", source, settings, {name: results})
        typer.echo(table(record))
        write_record(record)


class Comparison:
    """All engines on one corpus."""

    def __init__(
        self,
        part: CorpusPart,
        encoder: OnnxEncoder,
        python: Path,
        blocks: Path,
        folder: Path,
        stack: ExitStack,
    ) -> None:
        """Open nothing yet.

        Args:
            part: the corpus and its queries.
            encoder: what the block vectors were made with.
            python: of the peers whose packages do not fit ours.
            blocks: its block vectors, if it is complete.
            folder: for the indexes.
            stack: closes what was opened.
        """
        self.versions: dict[str, str] = {}
        self._part, self._python, self._blocks = part, python, blocks
        self._folder, self._stack = folder, stack
        self._by_vectors = (blocks / IDS).exists()
        self._qrels = read_qrels(part.folder / "qrels.tsv")
        self._encoder = encoder
        self._texts = {
            one.id: one.titled_text for one in read_corpus(part.corpus) if isinstance(one, Document)
        }

    def measure(self) -> dict[str, Any]:
        """Return the figures of every engine."""
        started = time.perf_counter()
        if self._by_vectors:
            stored = stored_corpus(self._part, self._encoder, self._blocks, self._folder)
        else:
            stored = stored_words(self._part, self._folder)
        data = self._stack.enter_context(stored)
        indexing = time.perf_counter() - started
        queries = stored_queries(data, self._part)
        asked = list(self._ours(data, queries))
        figures: dict[str, Any] = {
            one.row: {"indexing": indexing, "base": one.base} for one in asked
        }
        for name, peer, engine in self._peers(data):
            figures[name] = {"indexing": engine.indexing, "base": peer.base}
            if peer.like:
                peer = replace(peer, settings=(_with_all_words(figures[peer.like]["setting"]),))
            chosen, ndcg = self._choose(engine, peer)
            if peer.settings:
                figures[name] |= {"setting": chosen["id"], "ndcg_of_settings": ndcg}
            asked += [Asked(name, by, peer.base, engine.ways[way]) for by, way in chosen.items()]
        some = np.random.default_rng(0).permutation(sorted(queries))[:QUERIES].tolist()
        for (row, by), of_it in in_turns(asked, some, self._qrels).items():
            figures[row][by] = of_it
        return {"documents": len(self._texts), "queries": len(some), "engines": figures}

    def _ours(self, data: DataDirectory, queries: Mapping[str, EncodedQuery]) -> Iterator[Asked]:
        fusion = read_fusion(self._encoder.checkpoint)
        for name, row in OURS.items():
            if row.mode != "lexical" and not self._by_vectors:
                continue
            alignment = DEFAULT_ALIGNMENT if row.aligned else None
            own = (data, queries, row.mode, alignment, fusion)
            base = {"lexical": WORDS, "semantic": VECTORS, "hybrid": BOTH}[row.mode]
            yield Asked(name, "id", base, ask_longmatch(*own))
            if name == WORDS:
                yield Asked(name, "text", base, ask_longmatch(*own, by_text=True))

    def _peers(self, data: DataDirectory) -> Iterator[tuple[str, Peer, Engine]]:
        corpus = self._folder / "corpus.jsonl"
        self._write(corpus, data)
        opened: dict[tuple[str, str], Engine] = {}
        for name, peer in (PEERS | (PEERS_BY_VECTORS if self._by_vectors else {})).items():
            if peer.worker not in opened:
                module, argument = peer.worker
                python = self._python if module == "search_worker" else Path(sys.executable)
                command = (python, f"{_HERE}.{module}", argument, corpus)
                process = open_process(command, self._texts, self.versions)
                opened[peer.worker] = self._stack.enter_context(process)
            yield name, peer, opened[peer.worker]

    def _write(self, corpus: Path, data: DataDirectory) -> None:
        """Write ids, texts and, if they are compared by, document vectors."""
        found = data.store.find(list(self._texts)) if self._by_vectors else {}
        ids = {one.vector_id: name for name, one in found.items()}
        vectors = zip(*data.store.vectors(sorted(ids)), strict=True) if ids else ()
        vector_of = {ids[int(one)]: vector.tolist() for one, vector in vectors}
        with corpus.open("w", encoding="utf-8") as file:
            for name, text in self._texts.items():
                more = {"vector": vector_of[name]} if name in vector_of else {}
                file.write(json.dumps({"id": name, "text": text, **more}) + "\n")

    def _choose(self, engine: Engine, peer: Peer) -> tuple[dict[str, str], dict[str, float]]:
        """Return which way of an engine answers "id", and "text", and the nDCG of its settings."""
        if not peer.settings:
            return {way: way for way in engine.ways}, {}
        splits = read_splits(self._part.folder / "splits.tsv")
        names = sorted(one for one in self._qrels if splits.get(one) == "valid")
        some = np.random.default_rng(0).permutation(names)[:TO_CHOOSE_BY].tolist()
        way, ndcg = choose(engine.ways, peer.settings, some, self._qrels)
        return {"id": way}, ndcg


def _with_all_words(setting: str) -> str:
    return f"all words,{setting.partition(',')[2]}"


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown: a table for each group of engines, with ours."""
    tables = []
    for corpus, of_it in record["results"].items():
        for heading, base in (("words", WORDS), ("vectors", VECTORS), ("both", BOTH)):
            rows = [
                _row(name, one) for name, one in of_it["engines"].items() if base == one["base"]
            ]
            if rows:
                header = ["engine", "indexing s", "by text, p50 ms", "by id, p50 ms", "p95"]
                header += ["by id, of ours", "nDCG@10"]
                tables.append(f"{corpus}, by {heading}\n\n{markdown_table(header, rows)}")
    return "\n\n".join(tables)


def _row(name: str, one: Mapping[str, Any]) -> list[str]:
    text, by_id = one.get("text"), one["id"]
    setting = one.get("setting")
    return [
        f"{name} ({setting})" if setting else name,
        f"{one['indexing']:.1f}",
        "" if text is None else _milliseconds(text, "p50"),
        _milliseconds(by_id, "p50"),
        _milliseconds(by_id, "p95"),
        str(Spread(**by_id["times_ours"])),
        f"{by_id['ndcg']:.3f}",
    ]


def _milliseconds(figures: Mapping[str, Any], which: str) -> str:
    return f"{1000 * figures['seconds'][which]:.1f}"


if __name__ == "__main__":
    typer.run(main)
