"""From sampled batches to the tasks of objectives: documents are read, tensors made."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from encoder.alignment.space import open_space
from encoder.arrays import Float16, Float32
from encoder.checkpoint import Checkpoint
from encoder.terms.term_channel import TermChannel
from evaluation.block_archive import BlockArchive
from training.batch import DocumentArrays, DocumentBatch, collate, encode, split
from training.data.sampling import Batch, DocumentSlice, Sampler
from training.distillation import AlignmentProjection, block_vectors_task
from training.losses import (
    contrastive,
    pair_cosine,
    pair_cross_entropy,
    relation_distillation,
    supervised_contrastive,
)
from training.models.architecture import EncoderConfig, EncoderModel
from training.models.ernie_doc import ErnieDoc
from training.objectives import Objective, Task, Temperature, vectors_task
from training.pretraining import PretrainingHead, pretraining_task, read_vocabulary
from training.recipe import (
    DISTIL_BLOCKS,
    SELF_SUPERVISED,
    ContrastiveRecipe,
    DistillationRecipe,
    ObjectiveRecipe,
    PairsRecipe,
    SectionsRecipe,
    SupervisedContrastiveRecipe,
)

_DOCUMENTS_A_PASS = 64
_RECURRENT_DOCUMENTS_A_PASS = 8  # whose segments are long, and padded to one length


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads documents out of block archives.

    Attributes:
        archives: by the number that a `DocumentSlice` names.
        checkpoint: whose special tokens open and close a block.
        max_blocks: blocks of a document that are read at most.
        channel: whose term features a part has; None without them. All words of a whole document
            count, however few of its blocks are read.
        trained_blocks: random blocks of a document that a step reads as tokens; 0 while the
            sentence level is frozen.
        chunk: documents of a batch that are encoded at a time.
    """

    archives: Sequence[BlockArchive]
    checkpoint: Checkpoint
    max_blocks: int
    channel: TermChannel | None = None
    trained_blocks: int = 0
    chunk: int = 64
    _whole: dict[tuple[int, int], Float16] = field(default_factory=dict)  # terms of documents

    def batch(
        self, parts: Sequence[DocumentSlice], generator: torch.Generator | None
    ) -> DocumentBatch:
        """Read documents; without a generator every block is its cached vector."""
        documents = [self._read(part, generator) for part in parts]
        return collate(documents, self.checkpoint.padding_token)

    def chunks(
        self, parts: Sequence[DocumentSlice], generator: torch.Generator
    ) -> list[DocumentBatch]:
        """Read documents, as `batch`, in batches that are encoded one after another."""
        documents = [self._read(part, generator) for part in parts]
        padding = self.checkpoint.padding_token
        return [collate(part, padding) for part in split(documents, self.chunk)]

    def _read(self, part: DocumentSlice, generator: torch.Generator | None) -> DocumentArrays:
        archive = self.archives[part.archive]
        vectors = archive.vectors(part.row)[: self.max_blocks]
        places = np.arange(len(vectors)) if part.places is None else part.places
        chosen: list[int] = []
        if generator is not None and self.trained_blocks:
            order = torch.randperm(len(places), generator=generator)
            chosen = sorted(order[: self.trained_blocks].tolist())
        terms = self._terms(part, self.channel) if self.channel else None
        blocks = archive.blocks(part.row) if chosen else ()
        first, last = self.checkpoint.start_token, self.checkpoint.end_token
        tokens = [
            np.array([first, *blocks[places[place]], last], dtype=np.int64) for place in chosen
        ]
        return DocumentArrays(vectors[places], terms, chosen, tokens, part.section, part.sections)

    def _terms(self, part: DocumentSlice, channel: TermChannel) -> Float32:
        """Return the term features [F] of a part; those of a whole document are computed once."""
        blocks, key = self.archives[part.archive].blocks, (part.archive, part.row)
        if part.places is not None:
            whole = blocks(part.row)
            return channel.features([whole[place] for place in part.places])
        if key not in self._whole:
            self._whole[key] = channel.features(blocks(part.row)).astype(np.float16)
        return self._whole[key].astype(np.float32)


def training_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def new_objective(
    recipe: ObjectiveRecipe, sampler: Sampler, reader: Reader, config: EncoderConfig, seed: int
) -> Objective[EncoderModel]:
    """Make an objective of its recipe and the sampler of its batches.

    Args:
        sampler: gives the batches of its kind.
        seed: of the initial weights of the head.
    """
    torch.manual_seed(seed)
    head = _new_head(recipe, config, reader.checkpoint)

    def sample_task(generator: torch.Generator) -> Task[EncoderModel]:
        seed = int(torch.randint(2**62, (), generator=generator))
        return task_of(recipe, sampler(np.random.default_rng(seed)), reader, head, generator)

    return Objective(recipe.kind, recipe.weight, sample_task, head)


def _new_head(recipe: ObjectiveRecipe, config: EncoderConfig, start: Checkpoint) -> nn.Module:
    if recipe.kind == DISTIL_BLOCKS:
        return AlignmentProjection(open_space(start))
    if recipe.kind in SELF_SUPERVISED:
        return PretrainingHead(config, read_vocabulary(start), **recipe.parameters)
    if recipe.kind == "pairs":
        return nn.Module()
    return Temperature(recipe.parameters["temperature"])


def task_of(
    recipe: ObjectiveRecipe,
    sampled: Batch,
    reader: Reader,
    head: nn.Module,
    generator: torch.Generator,
) -> Task[EncoderModel]:
    """Read the documents of a batch, and return what is to be learned of them.

    Args:
        sampled: by the sampler of the objective.
        head: of the objective.
        generator: of all that is random in it.
    """
    documents = sampled.documents
    if isinstance(head, AlignmentProjection):
        return block_vectors_task(reader.batch(documents, generator), head)
    if isinstance(head, PretrainingHead):
        return pretraining_task(reader.batch(documents, generator), head, generator)
    loss = partial(_loss_of_vectors, recipe, sampled, head)
    return vectors_task(reader.chunks(documents, generator), loss)


def _loss_of_vectors(
    recipe: ObjectiveRecipe, sampled: Batch, head: nn.Module, vectors: Tensor
) -> Tensor:
    """Return the loss of the document vectors [D, dimension] of a batch, in its order."""
    known = {name: torch.from_numpy(a).to(vectors.device) for name, a in sampled.known.items()}
    match recipe:
        case PairsRecipe():
            sources, targets = vectors.chunk(2)
            cosines = (sources * targets).sum(1)
            loss = pair_cosine if recipe.loss == "cosine" else pair_cross_entropy
            return loss(cosines, known["labels"])
        case ContrastiveRecipe():
            queries, candidates = vectors.tensor_split([len(known["positives"])])
            scores = queries @ candidates.T / head()
            return contrastive(scores, known["positives"], known["ignored"])
        case SupervisedContrastiveRecipe() | SectionsRecipe():
            return supervised_contrastive(vectors, known["labels"], head())
        case DistillationRecipe(teacher_temperature=temperature):
            return relation_distillation(vectors, known["similarities"], head(), temperature)
        case _:
            raise TypeError(f"objective {recipe.kind} learns nothing of document vectors")


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
    recurrent = isinstance(model, ErnieDoc)
    size = _RECURRENT_DOCUMENTS_A_PASS if recurrent else _DOCUMENTS_A_PASS
    with torch.no_grad():
        for start in range(0, len(parts), size):
            rows = order[start : start + size]
            batch = reader.batch([parts[row] for row in rows], generator).to(model.device)
            vectors[rows] = encode(model, batch).cpu().numpy()
    return vectors
