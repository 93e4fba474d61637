"""How much of a document has to be read, and which blocks? Quality by the share that is read.

The Transformer reads some sentence blocks of each document, the words of all are counted. Every
way of choosing blocks is measured at several shares: document vectors, alignment (of the blocks
that were read, in a space fitted to them) and their hybrid with words, over the same corpora and
queries as with all blocks. Nothing is encoded again for it: blocks are chosen from block vectors
that are kept, and both queries and documents are read at the same share.

Choose on `--split valid`, report `test`: a way and a share that were chosen on the validation
queries of some corpora are proven on the test queries and on other corpora.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, make_record, write_record
from benchmarks.quality.retrieval import KEPT_BLOCKS, CorpusPart, find_corpora
from benchmarks.reading.choosers import CHOOSERS, BlockWords, Chooser
from benchmarks.reading.table import plot, table
from encoder.alignment.space import fit_space, join_aligned, sample_blocks
from encoder.arrays import Float32, Float64
from encoder.block_selection import LEAST_BLOCKS, blocks_to_encode
from encoder.checkpoint import DEFAULT_CHECKPOINT, find_checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.terms.term_channel import HashedTerms, open_term_channel
from encoder.terms.term_table import rows_of_words
from evaluation.encoded_corpus import EncodedCorpus, keep_blocks
from evaluation.experiment import SEMANTIC, UNALIGNED, VECTOR, Vectors, retrieval_task
from evaluation.judgements import read_qrels, read_splits
from evaluation.metrics import evaluate_per_query
from evaluation.report import RetrievalTask
from evaluation.significance import compare_paired, estimate_means
from evaluation.systems import (
    HYBRID,
    LEXICAL,
    System,
    cache_scores,
    lexical_system,
    rank,
    search_system,
    vector_system,
)
from index.corpus.reader import read_documents
from index.embed import EmbeddedCorpus
from index.progress import SilentProgress
from index.search.fusion import LinearFusion, read_fusion

SHARES = (0.75, 0.5, 0.35, 0.25, 0.15, 0.1)
ALL = "all blocks"


@dataclass(frozen=True, slots=True)
class Documents:
    """A corpus that is read again and again.

    Attributes:
        encoded: its blocks and block vectors.
        words: of the blocks of each document.
        features: term features of each document, of the words of all blocks.
        lexical: scores by words.
        task: the queries.
        rule: how scores are combined.
    """

    encoded: EncodedCorpus
    words: Sequence[BlockWords]
    features: Sequence[Float32]
    lexical: System
    task: RetrievalTask
    rule: LinearFusion


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    split: Annotated[str, typer.Option(help="valid or test: the queries.")] = "valid",
    checkpoint: Annotated[Path, typer.Option(help="A checkpoint.")] = DEFAULT_CHECKPOINT,
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")] = KEPT_BLOCKS,
    chooser: Annotated[list[str] | None, typer.Option(help="Only these; may be repeated.")] = None,
    share: Annotated[list[float] | None, typer.Option(help="Only these; may be repeated.")] = None,
    corpus: Annotated[list[str] | None, typer.Option(help="Only these; may be repeated.")] = None,
) -> None:
    """Measure every way of choosing blocks at every share, on every corpus with judgements."""
    source, checkpoint = commit(), find_checkpoint(checkpoint)
    encoder = OnnxEncoder(load_checkpoint(checkpoint))
    results = {}
    for one in find_corpora(data, split):
        if corpus is None or one.folder.name in corpus:
            typer.echo(one.folder.name, err=True)
            documents = open_documents(one, encoder, blocks / one.folder.name)
            results[one.folder.name] = measure(
                documents, encoder, chooser or list(CHOOSERS), share or SHARES
            )
    settings = {
        "split": split,
        "checkpoint": encoder.checkpoint.name,
        "fingerprint": encoder.fingerprint,
        "precision": encoder.precision,
        "least_blocks": LEAST_BLOCKS,
    }
    of_another = "" if checkpoint == DEFAULT_CHECKPOINT else f"-{checkpoint.name}"
    record = make_record(f"reading-{split}{of_another}", source, settings, results)
    typer.echo(table(record))
    plot(record, write_record(record).with_suffix(".svg"))


def open_documents(one: CorpusPart, encoder: OnnxEncoder, blocks: Path) -> Documents:
    """Read a corpus, after encoding what is missing."""
    encoded = keep_blocks(one.corpus, blocks, encoder, SilentProgress())
    hashed = open_term_channel(encoder.checkpoint).hashed
    limit = encoder.checkpoint.max_blocks
    read = [encoded.archive.blocks(row)[:limit] for row in encoded.rows.tolist()]
    documents = read_documents(one.corpus, encoded.ids)
    lexical = lexical_system([d.text for d in documents], [d.title for d in documents])
    plain = EmbeddedCorpus(
        encoded.ids, np.zeros((len(read), 1), np.float32), encoded.tokens, encoded.tokens, 0
    )
    splits = read_splits(one.folder / "splits.tsv")
    chosen = {name for name, part in splits.items() if part == one.part}
    qrels = read_qrels(one.folder / "qrels.tsv")
    return Documents(
        encoded=encoded,
        words=[describe_blocks(hashed, some) for some in read],
        features=[encoder.term_features(some) for some in read],
        lexical=cache_scores(lexical),
        task=retrieval_task(Vectors(plain, plain), qrels, chosen),
        rule=read_fusion(encoder.checkpoint),
    )


def describe_blocks(hashed: HashedTerms, blocks: Sequence[Sequence[int]]) -> BlockWords:
    """Return what choosers know of the blocks of a document."""
    rows, owners = rows_of_words(hashed.vocabulary, blocks)
    different = np.unique(owners * len(hashed.weights) + rows)
    weights = hashed.weights[different % len(hashed.weights)]
    rarity = np.bincount(different // len(hashed.weights), weights, minlength=len(blocks))
    return BlockWords(
        hashed.features_of_blocks(blocks),
        rarity.astype(np.float32),
        np.array([len(block) for block in blocks], dtype=np.int64),
    )


def measure(
    documents: Documents, encoder: OnnxEncoder, choosers: Sequence[str], shares: Sequence[float]
) -> dict[str, Any]:
    """Measure all ways on one corpus, each compared with reading all blocks."""
    task = documents.task
    _, whole = measure_share(documents, encoder, CHOOSERS["first"], 1.0)
    (lexical,) = _ndcg([documents.lexical], task).values()
    reading: list[dict[str, Any]] = []
    for name in choosers:
        for share in shares:
            typer.echo(f"  {name} {share}", err=True)
            tokens, found = measure_share(documents, encoder, CHOOSERS[name], share)
            figures = {
                system: asdict(compare_paired(values, whole[system]))
                for system, values in found.items()
            }
            reading.append({"chooser": name, "share": share, "tokens": tokens, "loss": figures})
    systems = {LEXICAL: lexical, **whole}
    estimates = {name: asdict(estimate_means(v[:, None])[0]) for name, v in systems.items()}
    return {
        "documents": len(documents.words),
        "tokens": int(documents.encoded.tokens.sum()),
        "queries": len(task.query_ids),
        ALL: estimates,
        "reading": reading,
    }


def measure_share(
    documents: Documents, encoder: OnnxEncoder, chooser: Chooser, share: float
) -> tuple[float, dict[str, Float64]]:
    """Return the share of the tokens that is read, and nDCG@10 of each query by system."""
    archive = documents.encoded.archive
    vectors, kept, tokens = [], [], 0
    for row, words, features in zip(
        documents.encoded.rows.tolist(), documents.words, documents.features, strict=True
    ):
        chosen = chooser(words, blocks_to_encode(len(words), share))
        read = archive.vectors(row)[chosen].astype(np.float32)
        vectors.append(encoder.combine(read, features))
        kept.append(read)
        tokens += int(words.tokens[chosen].sum())
    space = fit_space(sample_blocks(kept))
    aligned = join_aligned(space, [space.project(one) for one in kept])
    vector = vector_system(VECTOR, f"{share:g} of the blocks", np.stack(vectors))
    rule, lexical = documents.rule, documents.lexical
    systems = [
        vector,
        search_system(vector, None, aligned, rule, SEMANTIC),
        search_system(vector, lexical, None, rule, UNALIGNED),
        search_system(vector, lexical, aligned, rule, HYBRID),
    ]
    total = sum(int(words.tokens.sum()) for words in documents.words)
    return tokens / total, _ndcg(systems, documents.task)


def _ndcg(systems: Sequence[System], task: RetrievalTask) -> dict[str, Float64]:
    runs: Iterator[tuple[str, Any]] = (
        (one.name, rank(one, task.ids, task.query_ids, task.rows, 10)) for one in systems
    )
    return {name: evaluate_per_query(run, task.ids, task.qrels).ndcg for name, run in runs}


if __name__ == "__main__":
    typer.run(main)
