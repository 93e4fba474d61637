"""Validation of a training run, on documents that training does not see.

Pretraining is validated by the loss of its own objectives.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from encoder.alignment.space import at_equal_distances
from encoder.arrays import Float32, Int64
from evaluation.metrics import AUC, evaluate_run, measure_pairs
from evaluation.systems import rank_scores
from index.errors import CorpusError
from training.collate import Reader, encode_slices, task_of
from training.data.corpus import TrainingCorpus
from training.data.pair_files import TRAIN, VALID
from training.data.sampling import Batch, DocumentSlice
from training.loop import Validated
from training.models.architecture import EncoderModel
from training.objectives import Objective, step_generator
from training.recipe import TrainingRecipe

LINKS = "nDCG@10 of the validation queries"
PAIRS = "AUC of the validation pairs"
HALVES = "reciprocal rank of the other half of a held-out document"
_HELD_OUT = 1_000  # documents whose halves are searched, at most
_OTHERS = 2_000  # documents of the training part among whose halves they are searched, at most

# D documents, and which Q of them are queries, Int64[Q] -> Float32[Q, D]
Similarities = Callable[[Sequence[DocumentSlice], Int64], Float32]


def choose_figure(data: Sequence[TrainingCorpus]) -> str:
    """Return the best figure that the data allows: of links, else of pairs, else of halves.

    Of all, higher is better.
    """
    if any(corpus.judgements for corpus in data):
        return LINKS
    return PAIRS if any(corpus.has_valid_pairs() for corpus in data) else HALVES


def measure(
    data: Sequence[TrainingCorpus], similarities: Similarities, max_blocks: int, documents: int
) -> float:
    """Return the figure of `choose_figure`, the mean over the corpora that allow it.

    Args:
        data: corpora; the number of a part's archive is their place.
        max_blocks: blocks of a document that are read.
        documents: of a corpus that are searched, at most. Queries are left out for it, but no
            document that matches one of those that stay.
    """
    figure, figures = choose_figure(data), []
    for number, corpus in enumerate(data):
        if figure == LINKS and corpus.judgements:
            figures.append(_links(number, corpus, similarities, documents))
        elif figure == PAIRS and corpus.has_valid_pairs():
            figures.append(_pairs(number, corpus, similarities, documents))
        elif figure == HALVES and len(corpus.rows(VALID)):
            figures.append(_halves(number, corpus, similarities, max_blocks, documents))
    return float(np.mean(figures)) if figures else 0.0


def _links(number: int, corpus: TrainingCorpus, similarities: Similarities, limit: int) -> float:
    queries, ids = choose_search(corpus, limit)
    row_of = {name: row for row, name in enumerate(corpus.texts.ids)}
    slices = [DocumentSlice(number, int(corpus.texts.rows[row_of[name]])) for name in ids]
    place_of = {name: place for place, name in enumerate(ids)}
    places = np.array([place_of[query] for query in queries], dtype=np.int64)
    run = rank_scores(similarities(slices, places), ids, queries)
    return evaluate_run(run, {q: corpus.judgements[q] for q in queries})["nDCG@10"]


def choose_search(corpus: TrainingCorpus, limit: int) -> tuple[list[str], list[str]]:
    """Choose validation queries and the documents to search.

    Args:
        limit: of the documents. All that match a query are among them, so queries may be left out;
            one stays, whatever it takes.

    Returns:
        Ids of queries, and of documents in the order of the corpus.
    """
    every = list(corpus.judgements)
    ids = corpus.texts.ids
    queries: list[str] = []
    chosen: dict[str, None] = {}
    for place in at_equal_distances(len(every), min(len(every), limit)).tolist():
        more = dict.fromkeys([every[place], *corpus.judgements[every[place]]])
        if queries and len(chosen | more) > limit:
            break
        queries.append(every[place])
        chosen |= more
    for row in at_equal_distances(len(ids), limit).tolist():
        if len(chosen) < limit:
            chosen[ids[row]] = None
    return queries, [name for name in ids if name in chosen]


def _pairs(number: int, corpus: TrainingCorpus, similarities: Similarities, limit: int) -> float:
    pairs = corpus.pairs[VALID]
    # Sorted by label, so that a choice at equal distances keeps the share of each.
    order = np.argsort(pairs.labels, kind="stable")
    some = order[at_equal_distances(len(order), max(2, limit // 2))]
    sources, targets = pairs.sources[some], pairs.targets[some]
    rows, places = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    slices = [DocumentSlice(number, int(corpus.texts.rows[row])) for row in rows]
    queries, query = np.unique(places[: len(some)], return_inverse=True)
    scores = similarities(slices, queries)[query, places[len(some) :]]
    return measure_pairs(scores, pairs.labels[some], 0.0)[AUC]


def _halves(
    number: int, corpus: TrainingCorpus, similarities: Similarities, max_blocks: int, limit: int
) -> float:
    """Return the mean reciprocal rank of second halves, searched by first halves, and back."""
    half = max(1, limit // 2)
    held_out = corpus.rows(VALID)[: min(_HELD_OUT, half)]
    others = corpus.rows(TRAIN)[: min(_OTHERS, half)]
    rows = np.concatenate([held_out, others]).tolist()
    cut = [_cut(number, corpus, row, max_blocks) for row in rows]
    halves = [first for first, _ in cut] + [second for _, second in cut]
    here: Int64 = np.arange(len(held_out), dtype=np.int64)
    both = similarities(halves, np.concatenate([here, len(rows) + here]))
    from_firsts, from_seconds = both[: len(here), len(rows) :], both[len(here) :, : len(rows)]
    ranks = [
        (scores > scores[here, here][:, None]).sum(1) + 1 for scores in (from_firsts, from_seconds)
    ]
    return float(np.mean([(1 / rank).mean() for rank in ranks]))


def _cut(
    number: int, corpus: TrainingCorpus, row: int, max_blocks: int
) -> tuple[DocumentSlice, DocumentSlice]:
    archive_row = int(corpus.texts.rows[row])
    size = int(corpus.texts.archive.sizes[archive_row])
    places = np.arange(min(size, max_blocks), dtype=np.int64)
    middle = len(places) // 2  # a single block is both halves
    first, second = (places[:middle], places[middle:]) if middle else (places, places)
    return DocumentSlice(number, archive_row, first), DocumentSlice(number, archive_row, second)


LOSS = "loss of held-out documents"
_DOCUMENTS = 256  # that a validation reads, at most, unless a batch has more


def held_out_batches(data: Sequence[TrainingCorpus], size: int) -> list[list[DocumentSlice]]:
    """Choose documents of the validation part, the same in every call, in batches.

    All batches have `size` documents: to find a masked sentence block is easier in a smaller one.
    Only if there are fewer documents in all, the one batch has these.

    Args:
        data: corpora; the number of a part's archive is their place.
    """
    held_out = [
        DocumentSlice(number, int(corpus.texts.rows[row]))
        for number, corpus in enumerate(data)
        for row in corpus.rows(VALID).tolist()
    ]
    if not held_out:
        raise CorpusError(
            "pretraining stops by the loss of documents that it does not learn, and the "
            "validation part has none"
        )
    chosen = at_equal_distances(len(held_out), min(len(held_out), max(size, _DOCUMENTS)))
    parts = [held_out[place] for place in chosen.tolist()]
    full = max(1, len(parts) // size)
    return [parts[number * size : (number + 1) * size] for number in range(full)]


def held_out_loss(
    recipe: TrainingRecipe,
    objectives: Sequence[Objective[EncoderModel]],
    batches: Sequence[Sequence[DocumentSlice]],
    reader: Reader,
) -> Callable[[EncoderModel], Validated]:
    """Return what measures the loss of a recipe whose objectives all pretrain.

    Masks and permutations depend on the recipe's seed and the place of the batch alone, so every
    validation of a run asks the same. No step of a run has them: steps count from 1.

    Args:
        objectives: made of its objectives, in their order.
        batches: of `held_out_batches`.

    Returns:
        model -> the weighted sum of the losses, each the mean over batches, and all of its parts.
    """

    def measure(model: EncoderModel) -> Validated:
        found: dict[str, list[float]] = {}
        for stream, (table, made) in enumerate(
            zip(recipe.objectives, objectives, strict=True), start=1
        ):
            for number, parts in enumerate(batches):
                generator = step_generator(recipe.seed, 0, stream, number)
                task = task_of(table, Batch(tuple(parts)), reader, made.head, generator)
                bf16 = recipe.precision == "bf16"
                with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
                    losses = {name: loss.item() for name, loss in task(model).items()}
                losses[""] = sum(losses.values())
                for name, loss in losses.items():
                    found.setdefault(f"{made.name}.{name}".rstrip("."), []).append(loss)
        means = {name: float(np.mean(losses)) for name, losses in found.items()}
        total = sum(objective.weight * means[objective.name] for objective in objectives)
        return Validated(total, dict(sorted(means.items())))

    return measure


def model_similarities(model: EncoderModel, reader: Reader, recipe: TrainingRecipe) -> Similarities:
    """Return the cosines of the document vectors of a model."""
    from_tokens = recipe.sentence_level.trained != "frozen"

    def cosines(parts: Sequence[DocumentSlice], queries: Int64) -> Float32:
        vectors = encode_slices(model, reader, parts, from_tokens=from_tokens)
        found: Float32 = vectors[queries] @ vectors.T
        return found

    return cosines
