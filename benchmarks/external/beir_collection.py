"""How good is the document vector of a checkpoint on a collection of BEIR, by BEIR's own code?

It measures the vectors alone, by exact search: no words, no alignment, no adapter. The title of a
document is put before its text, as BEIR does for other models. The collection is a folder with
`corpus.jsonl`, `queries.jsonl` and `qrels/`. Needs the extra `external`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from beir.datasets.data_loader import GenericDataLoader
from beir.retrieval.evaluation import EvaluateRetrieval
from beir.retrieval.search.dense import DenseRetrievalExactSearch

from benchmarks.common import commit, make_record, markdown_table, write_record
from benchmarks.external.document_encoder import DocumentEncoder
from encoder.arrays import Float32
from encoder.checkpoint import DEFAULT_CHECKPOINT

CUTS = [1, 10, 100]


class BeirModel:
    """A checkpoint in the protocol of BEIR's dense models."""

    def __init__(self, encoder: DocumentEncoder) -> None:
        self._encoder = encoder

    def encode_queries(self, queries: Sequence[str], **_: Any) -> Float32:
        """Return Float32[Q, dimension]; how many at a time is the encoder's own choice."""
        return self._encoder.encode(queries)

    def encode_corpus(self, corpus: Sequence[Mapping[str, str]], **_: Any) -> Float32:
        """Return Float32[N, dimension] of documents with `text` and perhaps `title`."""
        return self._encoder.encode(
            [f"{one.get('title', '')} {one['text']}".strip() for one in corpus]
        )


def evaluate_collection(folder: Path, split: str, model: BeirModel) -> dict[str, float]:
    """Return nDCG, MAP, recall and precision of a collection, as BEIR computes them."""
    corpus, queries, qrels = GenericDataLoader(data_folder=str(folder)).load(split=split)
    search = DenseRetrievalExactSearch(model, show_progress_bar=False)
    retrieval = EvaluateRetrieval(search, k_values=CUTS, score_function="cos_sim")
    found = retrieval.retrieve(corpus, queries)
    measures: dict[str, float] = {}
    for one in retrieval.evaluate(qrels, found, CUTS):
        measures |= one
    return measures


def main(
    collection: Annotated[Path, typer.Argument(help="A folder of a BEIR collection.")],
    split: Annotated[str, typer.Option(help="Which file in qrels/.")] = "test",
    checkpoint: Annotated[Path, typer.Option(help="The encoder.")] = DEFAULT_CHECKPOINT,
    precision: Annotated[str | None, typer.Option(help="int8, fp16 or fp32.")] = None,
    threads: Annotated[int | None, typer.Option(help="By default one for each core.")] = None,
) -> None:
    """Measure one collection."""
    if not (collection / "qrels" / f"{split}.tsv").is_file():
        raise typer.BadParameter(f"{collection} has no qrels/{split}.tsv")
    source = commit()
    encoder = DocumentEncoder(checkpoint, precision=precision, threads=threads)
    measures = evaluate_collection(collection, split, BeirModel(encoder))
    settings = {
        "collection": collection.resolve().name,
        "split": split,
        "checkpoint": encoder.checkpoint.name,
        "fingerprint": encoder.checkpoint.fingerprint,
        "precision": encoder.precision,
    }
    record = make_record("beir", source, settings, measures)
    typer.echo(markdown_table(["measure", "value"], list(measures.items())))
    write_record(record)


if __name__ == "__main__":
    typer.run(main)
