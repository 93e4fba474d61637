"""The job of `longmatch lab dataset`: a data set as it is distributed becomes a corpus folder."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet, new_folder, write_corpus, write_counts
from training.datasets.beir import read_beir
from training.datasets.citations import read_citations
from training.datasets.dataset import paired_ids
from training.datasets.pair_tables import read_news, read_text_pairs
from training.datasets.plagiarism import read_plagiarism
from training.datasets.trec import read_collection
from training.datasets.wikipedia import read_similar_articles

UNCLEAR = "unclear: ask those who distribute it"


@dataclass(frozen=True, slots=True)
class Known:
    """A data set that can be converted.

    Attributes:
        licence: what is known of it.
        read: what a source holds; what is missing is an error before anything is read.
        agreement: that a user must have made; empty where none is required.
    """

    licence: str
    read: Callable[[Path, Progress], DataSet]
    agreement: str = ""


DATASETS: Mapping[str, Known] = {
    "aan": Known(UNCLEAR, read_citations),
    "wiki65k": Known("CC BY-SA", read_similar_articles),
    "cnse": Known(UNCLEAR, read_news),
    "cnss": Known(UNCLEAR, read_news),
    "pan": Known(UNCLEAR, read_plagiarism),
    "pairs": Known("that of the texts", read_text_pairs),
    "trec": Known(
        "by agreement",
        read_collection,
        "NIST and the owners of the texts hand out most collections of TREC to those who have "
        "signed an agreement on their use",
    ),
    "beir": Known("of each collection its own", read_beir),
}


def convert_dataset(name: str, source: Path, output: Path, progress: Progress) -> dict[str, Any]:
    """Write a data set as a corpus folder, which appears complete or not at all.

    Args:
        name: of `DATASETS`.
        source: the folder or file as it is distributed.

    Returns:
        Counts of documents, pairs, judgements and queries, and of what was left out.
    """
    read = DATASETS[name].read(source, progress)
    with new_folder(output) as folder:
        documents = write_corpus(folder, read)
        if not documents:
            raise CorpusError(f"{source}: has no document")
        counts = {
            "data set": name,
            "licence": DATASETS[name].licence,
            "documents": documents,
            "pairs": {
                part: {"matching": sum(pair.label for pair in pairs), "all": len(pairs)}
                for part, pairs in read.pairs.items()
            },
            "documents in pairs of two parts": _shared(read),
            "judgements": len(read.judgements),
            "queries": len(read.queries),
            "left out": {reason: count for reason, count in read.left_out.items() if count},
        }
        write_counts(folder, counts)
    return counts


def _shared(read: DataSet) -> int:
    """Count the documents that are in the pairs of two parts or three."""
    parts = Counter(name for part in read.pairs for name in paired_ids({part: read.pairs[part]}))
    return sum(number > 1 for number in parts.values())
