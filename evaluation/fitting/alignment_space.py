"""Fit the alignment space of a checkpoint, for collections that are too small for one of their own.

    python -m evaluation.fitting.alignment_space --corpus FOLDER [--corpus FOLDER] --blocks FOLDER

fits it to the training documents of corpora, all together, and writes it into the checkpoint.
"""

from pathlib import Path
from typing import Annotated

import typer

from encoder.alignment.space import fit_space, sample_blocks, write_checkpoint_space
from encoder.arrays import Float16
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.encoder import Encoder
from encoder.opening import open_encoder
from evaluation.encoded_corpus import keep_blocks
from evaluation.judgements import read_splits
from index.progress import SilentProgress


def training_blocks(folder: Path, blocks: Path, encoder: Encoder) -> list[Float16]:
    """Return the block vectors [S, H] of each training document of a corpus."""
    parts = read_splits(folder / "splits.tsv")
    encoded = keep_blocks(folder / "corpus.jsonl.gz", blocks, encoder, SilentProgress())
    rows = zip(encoded.ids, encoded.rows.tolist(), strict=True)
    return [encoded.archive.vectors(row) for name, row in rows if parts.get(name) == "train"]


def main(
    corpus: Annotated[list[Path], typer.Option(help="A corpus with splits.tsv; repeatable.")],
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")],
    checkpoint: Annotated[Path, typer.Option(help="The checkpoint.")] = DEFAULT_CHECKPOINT,
) -> None:
    """Fit the space and write it."""
    encoder = open_encoder(load_checkpoint(checkpoint))
    documents = [
        vectors
        for folder in corpus
        for vectors in training_blocks(folder, blocks / folder.name, encoder)
    ]
    space = fit_space(sample_blocks(documents))
    write_checkpoint_space(checkpoint, space)
    typer.echo(f"{checkpoint}: a space of {space.dimension} dimensions, {len(documents)} documents")


if __name__ == "__main__":
    typer.run(main)
