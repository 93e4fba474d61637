"""A collection in the format of BEIR: corpus.jsonl, queries.jsonl, qrels/*.tsv."""

from collections.abc import Iterator
from pathlib import Path

from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet
from training.datasets.lines import part_of_file, read_judgements, require_files


def read_beir(source: Path, progress: Progress) -> DataSet:
    """Read a collection; the part of a query is that of the judgements which name it.

    Queries without judgements are left out.
    """
    corpus, queries_file = _file(source, "corpus"), _file(source, "queries")
    judged_in = sorted((source / "qrels").glob("*.tsv"))
    judged = read_judgements(judged_in, source, "file of judgements qrels/*.tsv")
    parts = {query: part_of_file(path) for path, query, _ in judged}
    judgements = [(query, name, grade) for _, query, of in judged for name, grade in of.items()]
    queries = [query for query in _read(queries_file) if query.id in parts]
    missing = parts.keys() - {query.id for query in queries}
    if missing:
        raise CorpusError(f"{queries_file}: has no query {min(missing)!r}")
    progress.started("reading documents", None)
    return DataSet(
        _counted(_read(corpus), progress), judgements=judgements, queries=queries, parts=parts
    )


def _file(source: Path, name: str) -> Path:
    found = [source / f"{name}.jsonl{end}" for end in ("", ".gz")]
    return require_files([path for path in found if path.is_file()], source, found[0].name)[0]


def _read(path: Path) -> Iterator[Document]:
    for item in read_corpus(path):
        if isinstance(item, Document):
            yield item
        else:
            raise CorpusError(f"{path.parent / item.where}: {item.reason}")


def _counted(documents: Iterator[Document], progress: Progress) -> Iterator[Document]:
    for document in documents:
        progress.advanced(1)
        yield document
