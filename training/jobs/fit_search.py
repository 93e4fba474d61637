"""What search needs beside the graphs of a trained checkpoint, fitted to the data of its training.

The alignment space that small collections use, and the fusion of vector, alignment and word scores.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from encoder.alignment.space import (
    SAMPLE_DOCUMENTS,
    at_equal_distances,
    fit_to_blocks,
    open_space,
    write_checkpoint_space,
)
from encoder.arrays import Float32, Int64
from encoder.checkpoint import ALIGNMENT, FUSION, Checkpoint, load_checkpoint
from encoder.encoder import Encoder
from encoder.opening import open_encoder
from evaluation.block_archive import BlockArchive
from evaluation.encoded_corpus import EncodedCorpus, embed_encoded_corpus
from evaluation.fitting.fusion import (
    FusionCorpus,
    choose_rule,
    fit_expected,
    measure_weights,
    mode_figures,
    score_corpus,
)
from evaluation.report import RetrievalTask
from evaluation.systems import System, lexical_system
from index.corpus.reader import read_documents
from index.progress import Progress
from index.search.score import StandardRule, read_fusion, write_fusion
from training.data.corpus import TrainingCorpus
from training.data.files import EncoderJob, read_recipe
from training.data.pair_files import TRAIN
from training.jobs.validation import choose_search
from training.recipe import pretrains, reads_tokens_only


def encode_again(encoded: EncodedCorpus, encoder: Encoder, progress: Progress) -> EncodedCorpus:
    """Return a corpus with the block vectors of an encoder, held in memory.

    Args:
        encoded: its blocks of tokens, cut by the tokenizer of this encoder.
    """
    rows = encoded.rows.tolist()
    stored = encoded.archive
    progress.started("encoding for the fit of search", len(rows))

    def encode(row: int) -> Float32:
        vectors = encoder.encode_blocks(stored.blocks(row))
        progress.advanced(1)
        return vectors

    with ThreadPoolExecutor(encoder.threads) as pool:
        vectors = list(pool.map(encode, rows))
    halves = [of_document.astype(np.float16) for of_document in vectors]
    archive = BlockArchive(
        key=replace(stored.key, block_dimension=vectors[0].shape[1]),
        tokens=stored.tokens[rows],
        sizes=stored.sizes[rows],
        blocks=lambda row: stored.blocks(rows[row]),
        vectors=halves.__getitem__,
    )
    return replace(encoded, archive=archive, rows=np.arange(len(rows)))


MIN_QUERIES = 30  # fewer say too little about weights
MAX_QUERIES = 200  # of a corpus, which are ranked for each pair of weights
MAX_DOCUMENTS = 20_000  # of a corpus
# Of a corpus whose documents are encoded for the fit, with the start and with what was trained:
SEARCHED_AGAIN = 400  # as many as a validation searches
SAMPLED_AGAIN = 1_000  # for the alignment space

# Returns documents with block vectors of an encoder.
Encode = Callable[[EncodedCorpus, Encoder], EncodedCorpus]


@dataclass(frozen=True, slots=True)
class SearchFit:
    """The fusion of a trained checkpoint.

    Attributes:
        queries: validation queries, of all corpora.
        fitted: whether the weights were fitted to them; else they are those of the start.
        rule: the fusion.
        before: nDCG@10 of each mode of search with the start and its fusion, mean over corpora.
        after: of the trained checkpoint with `rule`, on the queries that it was fitted to.
    """

    queries: int
    fitted: bool
    rule: Mapping[str, Any]
    before: Mapping[str, float]
    after: Mapping[str, float]


def fit_search(
    checkpoint: Checkpoint,
    job: EncoderJob,
    start: Encoder,
    data: Sequence[TrainingCorpus],
    progress: Progress,
) -> SearchFit | None:
    """Fit the alignment space and the fusion of a trained checkpoint, and write them.

    A run that reads whole documents from their tokens stores no block vectors: some documents are
    encoded for the fit. Nothing is fitted after pretraining, nor if the sentence level was trained
    on some blocks of each document: training of the document level follows. A distilled sentence
    level has the vectors of its teacher, nearly, and takes over what was fitted to those.

    Args:
        start: the checkpoint that it was trained from.

    Returns:
        What was fitted and measured; None if no corpus has validation queries, or nothing is
        fitted.
    """
    recipe, precision = read_recipe(job), job.precisions[0]
    if recipe.distils:
        keep_fitted(job.start, checkpoint)
        return None
    frozen = recipe.sentence_level.trained == "frozen"
    if not frozen and (pretrains(recipe) or not reads_tokens_only(recipe)):
        return None

    def open_trained() -> Encoder:
        return open_encoder(load_checkpoint(checkpoint.directory), precision=precision)

    def encode(encoded: EncodedCorpus, encoder: Encoder) -> EncodedCorpus:
        return encode_again(encoded, encoder, progress)

    parts = [_training_part(corpus, None if frozen else SAMPLED_AGAIN) for corpus in data]
    if not frozen:
        trained = open_trained()
        parts = [encode(part, trained) for part in parts if part.ids]
    fit_trained_space(checkpoint, parts)
    return fit_fusion(open_trained(), start, data, progress, None if frozen else encode)


def keep_fitted(start: Checkpoint, checkpoint: Checkpoint) -> None:
    """Copy the alignment space and the fusion of the start into a checkpoint."""
    if ALIGNMENT in start.files:
        write_checkpoint_space(checkpoint.directory, open_space(start))
    if FUSION in start.files:
        write_fusion(checkpoint, read_fusion(start))


def _training_part(corpus: TrainingCorpus, most: int | None) -> EncodedCorpus:
    """Return the documents of a corpus for training, at most so many, at equal distances."""
    rows = corpus.rows(TRAIN)
    some = at_equal_distances(len(rows), len(rows) if most is None else most)
    return corpus.texts.select([corpus.texts.ids[row] for row in rows[some].tolist()])


def fit_trained_space(checkpoint: Checkpoint, parts: Sequence[EncodedCorpus]) -> bool:
    """Fit the alignment space of a checkpoint to documents; return whether they suffice.

    Args:
        checkpoint: with the sentence level that encoded them.
        parts: documents for training, of each corpus.
    """
    rows = [(part.archive, row) for part in parts for row in part.rows.tolist()]
    chosen = [rows[n] for n in at_equal_distances(len(rows), SAMPLE_DOCUMENTS).tolist()]
    blocks = [archive.vectors(row) for archive, row in chosen]
    space = fit_to_blocks(blocks, whitens=checkpoint.mean_of_blocks) if blocks else None
    if space is not None:
        write_checkpoint_space(checkpoint.directory, space)
    return space is not None


def fit_fusion(
    trained: Encoder,
    start: Encoder,
    data: Sequence[TrainingCorpus],
    progress: Progress,
    encode: Encode | None = None,
) -> SearchFit | None:
    """Fit the fusion of a trained checkpoint on validation queries, and write it.

    Args:
        start: the checkpoint that it was trained from.
        encode: makes the block vectors of some documents; without it, those of the data count,
            which both sentence levels then have in common.

    Returns:
        What was fitted and measured; None if no corpus has validation queries.
    """
    judged = [corpus for corpus in data if corpus.judgements]
    if not judged:
        return None
    progress.started("fusion of the scores", 2 * len(judged))
    before, after = [], []
    for query in judged:
        search = _read_search(query, encode)
        before.append(search(start))
        progress.advanced(1)
        after.append(search(trained))
        progress.advanced(1)
    former = read_fusion(start.checkpoint)
    queries = sum(len(corpus.task.query_ids) for corpus in after)
    line = fit_expected(after)
    rule = replace(former, expected_slope=line[0], expected_intercept=line[1])
    if queries >= MIN_QUERIES:
        rule = choose_rule(measure_weights(after, line), after, line)
    write_fusion(trained.checkpoint, rule)
    return SearchFit(
        queries=queries,
        fitted=queries >= MIN_QUERIES,
        rule=asdict(rule),
        before=_mean_figures(before, former),
        after=_mean_figures(after, rule),
    )


def _read_search(
    corpus: TrainingCorpus, encode: Encode | None
) -> Callable[[Encoder], FusionCorpus]:
    """Choose queries and documents; the function returned scores them by an encoder."""
    most = MAX_DOCUMENTS if encode is None else SEARCHED_AGAIN
    queries, ids = choose_search(corpus, min(most, len(corpus.texts.ids)))
    queries = [queries[place] for place in at_equal_distances(len(queries), MAX_QUERIES).tolist()]
    encoded = corpus.texts.select(ids)
    place_of = {name: place for place, name in enumerate(ids)}
    places: Int64 = np.array([place_of[name] for name in queries], dtype=np.int64)
    judgements = {name: corpus.judgements[name] for name in queries}
    task = RetrievalTask(tuple(ids), tuple(queries), places, encoded.tokens[places], judgements)
    lexical = _lexical(corpus, ids)

    def score(encoder: Encoder) -> FusionCorpus:
        read = encode(encoded, encoder) if encode else encoded
        return score_corpus(embed_encoded_corpus(read, encoder), task, lexical)

    return score


def _lexical(corpus: TrainingCorpus, ids: Sequence[str]) -> System:
    documents = read_documents(corpus.files.corpus, ids)
    return lexical_system([each.text for each in documents], [each.title for each in documents])


def _mean_figures(corpora: Sequence[FusionCorpus], rule: StandardRule) -> dict[str, float]:
    figures = [mode_figures(corpus, rule) for corpus in corpora]
    return {
        mode: round(float(np.mean([figure[mode] for figure in figures])), 4) for mode in figures[0]
    }
