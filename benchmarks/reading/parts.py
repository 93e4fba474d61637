r"""Write corpora of a part of their documents, so that a study of block vectors takes an hour.

    python -m benchmarks.reading.parts DATA -o SMALL \
        --keep proposals=test,valid --keep wikispeedia=test,valid:900 --keep rfc=test:700

Judgements of pairs that are not both kept are left out, so that a perfect ranking scores 1.
"""

import gzip
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from evaluation.judgements import PARTS, read_qrels, read_splits
from index.corpus.json_lines import BadLine, parse_document, read_lines


def main(
    data: Annotated[Path, typer.Argument(help="A folder of corpora.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    keep: Annotated[list[str], typer.Option(help="CORPUS=PART,PART or …:MOST; may be repeated.")],
) -> None:
    """Write the documents, judgements and splits of parts of corpora."""
    for one in keep:
        name, _, rest = one.partition("=")
        listed, _, most = rest.partition(":")
        parts = listed.split(",")
        if unknown := set(parts) - set(PARTS):
            raise typer.BadParameter(f"{one}: {min(unknown)!r} is none of {', '.join(PARTS)}")
        written = write_part(data / name, output / name, parts, int(most) if most else None)
        typer.echo(f"{name}: {written} documents")


def write_part(folder: Path, target: Path, parts: Collection[str], most: int | None = None) -> int:
    """Write the documents of some parts of a corpus with their judgements; return their number.

    Args:
        folder: of the corpus.
        target: folder to write.
        parts: of its splits.
        most: documents to write, the first ones; all when not given.

    Raises:
        CorpusError: judgements or splits cannot be read.
    """
    target.mkdir(parents=True, exist_ok=True)
    splits = read_splits(folder / "splits.tsv")
    chosen = {name for name, part in splits.items() if part in parts}
    kept: set[str] = set()
    with gzip.open(target / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
        for line in read_lines(folder / "corpus.jsonl.gz"):
            if isinstance(line, BadLine) or len(kept) == most:
                continue
            name = parse_document(line.text).id
            if name in chosen:
                file.write(line.text.rstrip("\n") + "\n")
                kept.add(name)
    with (target / "qrels.tsv").open("w", encoding="utf-8") as file:
        for query, judged in read_qrels(folder / "qrels.tsv").items():
            for document, relevance in judged.items():
                if query in kept and document in kept:
                    file.write(f"{query}\t0\t{document}\t{relevance}\n")
    shutil.copyfile(folder / "splits.tsv", target / "splits.tsv")
    return len(kept)


if __name__ == "__main__":
    typer.run(main)
