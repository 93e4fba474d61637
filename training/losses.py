"""Losses: stateless functions of tensors, each a mean."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.batch import (
    BlockTexts,
    DocumentBatch,
    as_documents,
    block_vectors,
    put_computed,
    texts_of,
)
from training.models.architecture import EncoderConfig, EncoderModel, RecurrentModel
from training.models.layers import BlockEncoder
from training.models.smith import DocumentEncoder


class WordHead(nn.Module):
    """The transformation of a masked token before BERT's (tied) output embedding."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size))

    def forward(self, states: Tensor) -> Tensor:
        """Transform states [N, H] -> [N, H]."""
        result: Tensor = self.norm(F.gelu(self.transform(states)))
        return result


class BlockHead(nn.Module):
    """The learned vector that replaces masked sentence blocks (section 4.2.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        # A unit vector, as those around it are: it must not dominate them.
        self.masked_block = nn.Parameter(F.normalize(torch.randn(config.hidden_size), dim=0))

    def forward(self, vectors: Tensor, masked: Tensor) -> Tensor:
        """Put it into block vectors [D, S, H] wherever masked [D, S] is true."""
        return torch.where(masked[:, :, None], self.masked_block.to(vectors.dtype), vectors)


def word_loss(
    model: EncoderModel,
    head: WordHead,
    texts: BlockTexts,
    words: Tensor,
    states: Tensor | None = None,
) -> Tensor:
    """Masked word prediction over text.

    Args:
        texts: sentence blocks with hidden words, [N, T]; of a recurrent model, all blocks of each
            document.
        words: [N, T] the token ids to predict, -1 where there is nothing to predict.
        states: [N, T, H] of the tokens, where they are known.

    Returns:
        [] loss, the mean over the masked words; 0 where none is masked.
    """
    states = _token_states(model, texts) if states is None else states
    chosen = words >= 0
    if not chosen.any():
        return states.sum() * 0.0
    embedding = model.block_encoder.token_embedding.weight
    return masked_word_prediction(head(states[chosen]), embedding, head.bias, words[chosen])


def _token_states(model: EncoderModel, texts: BlockTexts) -> Tensor:
    """Return the states [N, T, H] of blocks that are read from their tokens."""
    if isinstance(model, RecurrentModel):
        ids, mask = as_documents(texts)  # [D, S, T]
        states = torch.stack(model.segment_states(ids, mask), dim=1)  # [D, S, T, H]
        return states[texts.documents, texts.places]
    level = cast(BlockEncoder, model.block_encoder)
    return level.token_states(texts.input_ids, texts.attention_mask)


def block_loss(
    model: EncoderModel,
    head: BlockHead,
    batch: DocumentBatch,
    masked: Tensor,
    vectors: Tensor | None = None,
) -> Tensor:
    """Masked sentence block prediction, over cached block vectors or over text.

    Args:
        model: whose document level is trained, and its sentence level where the batch has text.
        masked: [D, S] bool, the blocks to predict.
        vectors: [D, S, H] of the blocks, where they are known.

    Returns:
        [] loss, the mean over the masked blocks; 0 where none is masked.
    """
    level = model.document_encoder
    if not isinstance(level, DocumentEncoder):
        raise TypeError("this architecture cannot predict masked sentence blocks")
    vectors = block_vectors(model, batch) if vectors is None else vectors
    states = level.block_states(head(vectors, masked), batch.block_mask)
    if not masked.any():
        return states.sum() * 0.0
    return masked_block_prediction(states[masked], vectors[masked].to(states.dtype))


class JointHead(nn.Module):
    """The heads of masked words and masked sentence blocks of one batch."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.words = WordHead(config)
        self.blocks = BlockHead(config)


def joint_losses(
    model: EncoderModel, head: JointHead, batch: DocumentBatch, words: Tensor, masked: Tensor
) -> dict[str, Tensor]:
    """Masked words and masked sentence blocks of one and the same batch (SMITH, equation 7).

    Args:
        model: both of whose levels are trained.
        batch: documents whose texts have hidden words, [N, T].
        words: [N, T] the token ids to predict, -1 where there is nothing to predict.
        masked: [D, S] bool, the blocks to predict.

    Returns:
        [] both losses, "words" and "blocks", each a mean; the paper trains their sum.
    """
    texts = texts_of(batch)
    level = cast(BlockEncoder, model.block_encoder)
    states = level.token_states(texts.input_ids, texts.attention_mask)  # [N, T, H]
    vectors = put_computed(batch, level.pool(states, texts.attention_mask))  # [D, S, H]
    return {
        "words": word_loss(model, head.words, texts, words, states),
        "blocks": block_loss(model, head.blocks, batch, masked, vectors),
    }


def pair_cross_entropy(cosines: Tensor, labels: Tensor, amplifier: float) -> Tensor:
    """Binary cross-entropy of pairs: p = sigmoid(amplifier * cosine) (SMITH, section 4.3).

    Args:
        cosines: [P] cosines of the document vectors of each pair.
        labels: [P], 1 for a match and 0 for none.
        amplifier: 6 in the configurations that SMITH's authors published. A cosine alone could
            only reach probabilities from 0.27 to 0.73.

    Returns:
        [] mean over the pairs.
    """
    return F.binary_cross_entropy_with_logits(amplifier * cosines, labels.to(cosines.dtype))


def pair_cosine(cosines: Tensor, labels: Tensor) -> Tensor:
    """Cosine loss of pairs: 1 - cosine for a match, and what of the cosine is above 0 for none.

    CoLDE's ablation 4.5.3 replaces the contrastive loss by "cosine similarity" and gives no
    formula; this is the loss of PyTorch by that name, without a margin.

    Args:
        cosines: [P] cosines of the document vectors of each pair.
        labels: [P], 1 for a match and 0 for none.

    Returns:
        [] mean over the pairs.
    """
    return torch.where(labels > 0, 1 - cosines, cosines.clamp(min=0)).mean()


def contrastive(logits: Tensor, positives: Tensor, ignored: Tensor | None = None) -> Tensor:
    """InfoNCE over a batch, from queries to candidates and back.

    Every positive of a query is compared with the negatives of the query only, not with its other
    positives. The way back has a term for each candidate that is a positive of some query; a hard
    negative that is a positive of none takes part in the way out only.

    Args:
        logits: [Q, C] similarities divided by a temperature. The candidates are the positives of
            the batch and any hard negatives.
        positives: [Q, C] bool; every query has at least one.
        ignored: [Q, C] bool, pairs that are neither: probably matches, but not judged.

    Returns:
        [] mean of the two ways; each the mean over its rows of the mean over a row's positives.
    """
    negatives = ~positives if ignored is None else ~(positives | ignored)
    there = _positives_against_negatives(logits, positives, negatives)
    back = _positives_against_negatives(logits.T, positives.T, negatives.T)
    return (there + back) / 2


def supervised_contrastive(vectors: Tensor, labels: Tensor, temperature: Tensor | float) -> Tensor:
    """Pull together what has one label, push the rest apart (CoLDE, section 3.3).

    The paper sums over the samples; this is the mean over those that have a positive, so that
    neither the learning rate nor the weight of the objective depends on the batch size.

    Args:
        vectors: [D, H] unit vectors: in the paper two sections of each document.
        labels: [D] integers.
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=vectors.device)
    positives = (labels[:, None] == labels[None, :]) & ~itself  # [D, D]
    scores = (vectors @ vectors.T / temperature).masked_fill(itself, _lowest(vectors))
    log_shares = torch.log_softmax(scores, dim=1)  # [D, D]
    return -_mean_of_row_means(log_shares, positives)


def relation_distillation(
    vectors: Tensor,
    teacher_similarities: Tensor,
    temperature: Tensor | float,
    teacher_temperature: float,
) -> Tensor:
    """Teach which documents of a batch a document resembles, rather than its position.

    KL(softmax(teacher / teacher_temperature) || softmax(cosines / temperature)) over the other
    documents of the batch, the mean over its documents.

    Args:
        vectors: [D, H] unit vectors of the student.
        teacher_similarities: [D, D]; the diagonal is not looked at.
    """
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    lowest = _lowest(vectors)
    teacher = (teacher_similarities / teacher_temperature).masked_fill(itself, lowest)
    student = (vectors @ vectors.T / temperature).masked_fill(itself, lowest)
    return F.kl_div(
        torch.log_softmax(student, dim=1),
        torch.log_softmax(teacher.to(vectors.dtype), dim=1),
        reduction="batchmean",
        log_target=True,
    )


def masked_block_prediction(predicted: Tensor, blocks: Tensor) -> Tensor:
    """Find each masked block among all masked blocks of the batch (SMITH, equations 4 to 6).

    Args:
        predicted: [B, H] what the document level says in the masked places.
        blocks: [B, H] the block vectors that were there.

    Returns:
        [] cross-entropy, the mean over the masked blocks.
    """
    similarities = predicted @ blocks.T  # [B, B], eq. 4
    return F.cross_entropy(similarities, torch.arange(len(blocks), device=blocks.device))


def masked_word_prediction(
    states: Tensor, embedding: Tensor, bias: Tensor, words: Tensor
) -> Tensor:
    """Find each masked word in the vocabulary (SMITH, section 4.2; BERT).

    Args:
        states: [N, H] what the sentence level's head says in the masked places.
        embedding: [V, H] the token embedding, shared with the input.
        bias: [V].
        words: [N] the token ids that were there.

    Returns:
        [] cross-entropy, the mean over the masked words.
    """
    return F.cross_entropy(F.linear(states, embedding, bias), words)


def _positives_against_negatives(scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Mean over rows of the mean over positives of -log(e^p / (e^p + sum of e^negatives))."""
    rest = scores.masked_fill(~negatives, _lowest(scores)).logsumexp(1, keepdim=True)  # [Q, 1]
    return _mean_of_row_means(F.softplus(rest - scores), positives)


def _mean_of_row_means(values: Tensor, chosen: Tensor) -> Tensor:
    """Mean over each row's chosen values, then over the rows that have one; 0 where none has."""
    count = chosen.sum(1)  # [rows]
    means = values.masked_fill(~chosen, 0.0).sum(1) / count.clamp(min=1)
    return means.sum() / (count > 0).sum().clamp(min=1)


def _lowest(values: Tensor) -> float:
    """Return a finite number below every score, which softmax turns into 0."""
    return torch.finfo(values.dtype).min / 2
