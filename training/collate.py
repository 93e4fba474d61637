"""From batch specifications to the tasks of objectives: documents are read, tensors made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
import torch
from torch import Tensor, nn

from encoder.alignment.space import open_space
from encoder.arrays import Float32
from encoder.checkpoint import Checkpoint
from evaluation.block_archive import BlockArchive
from training.batch import DocumentArrays, DocumentBatch, collate, encode, texts_of
from training.data.sampling import (
    BatchSpec,
    CandidateBatch,
    DocumentsBatch,
    DocumentSlice,
    LabelBatch,
    PairBatch,
    SimilarityBatch,
)
from training.distillation import AlignmentProjection, block_vectors_task
from training.losses import (
    BlockHead,
    JointHead,
    WordHead,
    contrastive,
    pair_cosine,
    pair_cross_entropy,
    relation_distillation,
    supervised_contrastive,
)
from training.models.architecture import EncoderConfig, EncoderModel, RecurrentModel
from training.objectives import (
    ModelTask,
    Objective,
    Temperature,
    VectorTask,
    Vocabulary,
    choose_blocks,
    joint_task,
    masked_blocks_task,
    masked_words_task,
)
from training.recipe import DISTIL_BLOCKS, ObjectiveRecipe, check_objective
from training.reordering import OrderHead, reorder_task

_DOCUMENTS_A_PASS = 64
_RECURRENT_DOCUMENTS_A_PASS = 8  # whose segments are long, and padded to one length

Sampler = Callable[[np.random.Generator], BatchSpec]
ReadTerms = Callable[[DocumentSlice], Float32]  # -> [F]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads documents out of block archives.

    Attributes:
        archives: by the number that a `DocumentSlice` names.
        checkpoint: whose special tokens open and close a block.
        max_blocks: blocks of a document that are read at most.
        read_terms: the term features of a part; None without a term channel.
        trained_blocks: random blocks of a document that a step reads as tokens; 0 while the
            sentence level is frozen.
    """

    archives: Sequence[BlockArchive]
    checkpoint: Checkpoint
    max_blocks: int
    read_terms: ReadTerms | None = None
    trained_blocks: int = 0

    def batch(
        self, parts: Sequence[DocumentSlice], generator: torch.Generator | None
    ) -> DocumentBatch:
        """Read documents; without a generator every block is its cached vector."""
        documents = [self._read(part, generator) for part in parts]
        return collate(documents, self.checkpoint.padding_token)

    def _read(self, part: DocumentSlice, generator: torch.Generator | None) -> DocumentArrays:
        archive = self.archives[part.archive]
        vectors = archive.vectors(part.row)[: self.max_blocks]
        places = np.arange(len(vectors)) if part.places is None else part.places
        chosen: list[int] = []
        if generator is not None and self.trained_blocks:
            chosen = choose_blocks(len(places), self.trained_blocks, generator).tolist()
        terms = self.read_terms(part) if self.read_terms else None
        blocks = archive.blocks(part.row) if chosen else ()
        first, last = self.checkpoint.start_token, self.checkpoint.end_token
        tokens = [
            np.array([first, *blocks[places[place]], last], dtype=np.int64) for place in chosen
        ]
        return DocumentArrays(vectors[places], terms, chosen, tokens, part.section, part.sections)


def training_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def new_objective(
    recipe: ObjectiveRecipe,
    sampler: Sampler,
    reader: Reader,
    config: EncoderConfig,
    vocabulary: Vocabulary,
    seed: int,
) -> Objective[EncoderModel]:
    """Make an objective of its recipe and the sampler of its batches.

    Args:
        sampler: gives the batches of its kind.
        seed: of the initial weights of the head.
    """
    check_objective(recipe, config)
    torch.manual_seed(seed)
    head = _head(recipe, config, reader.checkpoint)

    def sample_task(generator: torch.Generator) -> VectorTask | ModelTask[EncoderModel]:
        seed = int(torch.randint(2**62, (), generator=generator))
        spec = sampler(np.random.default_rng(seed))
        return _task(recipe, spec, _Making(reader, head, vocabulary, generator))

    return Objective(recipe.name, recipe.weight, sample_task, head)


def pretraining_task(
    recipe: ObjectiveRecipe,
    parts: Sequence[DocumentSlice],
    reader: Reader,
    head: nn.Module,
    vocabulary: Vocabulary,
    generator: torch.Generator,
) -> ModelTask[EncoderModel]:
    """Make the task of an objective of pretraining over given documents."""
    return _pretraining_task(recipe, parts, _Making(reader, head, vocabulary, generator))


def encode_slices(
    model: EncoderModel,
    reader: Reader,
    parts: Sequence[DocumentSlice],
    *,
    from_tokens: bool = False,
) -> Float32:
    """Encode documents without gradients.

    Args:
        from_tokens: compute every block vector anew, since the cached ones are of another sentence
            level.

    Returns:
        [D, dimension], unit norm.
    """
    generator = torch.Generator() if from_tokens else None
    reader = replace(reader, trained_blocks=reader.max_blocks)
    lengths = [
        reader.archives[part.archive].sizes[part.row] if part.places is None else len(part.places)
        for part in parts
    ]
    order = np.argsort(lengths, kind="stable")  # less padding
    vectors = np.empty((len(parts), model.config.dimension), dtype=np.float32)
    device = next(model.parameters()).device
    recurrent = isinstance(model, RecurrentModel)
    size = _RECURRENT_DOCUMENTS_A_PASS if recurrent else _DOCUMENTS_A_PASS
    with torch.no_grad():
        for start in range(0, len(parts), size):
            rows = order[start : start + size]
            batch = reader.batch([parts[row] for row in rows], generator).to(device)
            vectors[rows] = encode(model, batch).cpu().numpy()
    return vectors


@dataclass(frozen=True, slots=True)
class _Making:
    reader: Reader
    head: nn.Module
    vocabulary: Vocabulary
    generator: torch.Generator

    def batch(self, *parts: Sequence[DocumentSlice]) -> DocumentBatch:
        return self.reader.batch([part for some in parts for part in some], self.generator)

    @property
    def temperature(self) -> Temperature:
        if not isinstance(self.head, Temperature):
            raise TypeError(f"{type(self.head).__name__} is not a temperature")
        return self.head


def _head(recipe: ObjectiveRecipe, config: EncoderConfig, start: Checkpoint) -> nn.Module:
    if recipe.kind == "wp":
        return WordHead(config)
    if recipe.kind == "sp":
        return BlockHead(config)
    if recipe.kind == "wp+sp":
        return JointHead(config)
    if recipe.kind == "reorder":
        return OrderHead(config, recipe.parameters["chunks"])
    if recipe.kind == DISTIL_BLOCKS:
        return AlignmentProjection(open_space(start))
    if recipe.kind == "pairs":
        return nn.Module()
    return Temperature(recipe.parameters["temperature"])


def _task(
    recipe: ObjectiveRecipe, spec: BatchSpec, making: _Making
) -> VectorTask | ModelTask[EncoderModel]:
    match spec:
        case PairBatch():
            return _pairs_task(recipe, spec, making)
        case CandidateBatch():
            return _candidates_task(spec, making)
        case LabelBatch():
            labels, temperature = torch.from_numpy(spec.labels), making.temperature
            return VectorTask(
                making.batch(spec.documents),
                lambda vectors: supervised_contrastive(
                    vectors, labels.to(vectors.device), temperature()
                ),
            )
        case SimilarityBatch():
            teacher, temperature = torch.from_numpy(spec.similarities), making.temperature
            teacher_temperature = recipe.parameters["teacher_temperature"]
            return VectorTask(
                making.batch(spec.documents),
                lambda vectors: relation_distillation(
                    vectors, teacher.to(vectors.device), temperature(), teacher_temperature
                ),
            )
        case DocumentsBatch():
            return _pretraining_task(recipe, spec.documents, making)
        case _:
            assert_never(spec)


def _pairs_task(recipe: ObjectiveRecipe, spec: PairBatch, making: _Making) -> VectorTask:
    """Score pairs: the first half of the documents against the second, row by row."""
    labels, parameters = torch.from_numpy(spec.labels), recipe.parameters

    def loss(vectors: Tensor) -> Tensor:
        sources, targets = vectors.chunk(2)
        cosines, known = (sources * targets).sum(1), labels.to(vectors.device)
        if parameters["loss"] == "cosine":
            return pair_cosine(cosines, known)
        return pair_cross_entropy(cosines, known, parameters["amplifier"])

    return VectorTask(making.batch(spec.sources, spec.targets), loss)


def _candidates_task(spec: CandidateBatch, making: _Making) -> VectorTask:
    """Find the positives of queries among candidates, which follow the queries in the batch."""
    positives, ignored = torch.from_numpy(spec.positives), torch.from_numpy(spec.ignored)
    queries, temperature = len(spec.queries), making.temperature

    def loss(vectors: Tensor) -> Tensor:
        scores = vectors[:queries] @ vectors[queries:].T / temperature()
        return contrastive(scores, positives.to(scores.device), ignored.to(scores.device))

    return VectorTask(making.batch(spec.queries, spec.candidates), loss)


def _pretraining_task(
    recipe: ObjectiveRecipe, documents: Sequence[DocumentSlice], making: _Making
) -> ModelTask[EncoderModel]:
    batch, parameters = making.batch(documents), recipe.parameters
    vocabulary, generator = making.vocabulary, making.generator
    match making.head:
        case AlignmentProjection() as projection:
            return block_vectors_task(batch, projection)
        case BlockHead() as head:
            return masked_blocks_task(batch, parameters["masked_blocks"], head, generator)
        case JointHead() as head:
            shares = parameters["share"], parameters["masked_blocks"]
            return joint_task(batch, vocabulary, shares, head, generator)
        case OrderHead() as head:
            sizes = parameters["chunks"], parameters["share"]
            start = making.reader.checkpoint
            return reorder_task(texts_of(batch), start, vocabulary, sizes, head, generator)
        case WordHead() as head:
            share = parameters["share"]
            return masked_words_task(texts_of(batch), vocabulary, share, head, generator)
        case head:
            raise TypeError(f"{type(head).__name__} predicts nothing of texts")
