"""Losses: stateless functions of tensors, each a mean."""

import torch
from torch import Tensor
from torch.nn import functional as F

# Of the cosine of a pair, as in the configurations that SMITH's authors published. A cosine alone
# could only reach probabilities from 0.27 to 0.73.
AMPLIFIER = 6.0


def pair_cross_entropy(cosines: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of pairs: p = sigmoid(AMPLIFIER * cosine) (SMITH, section 4.3).

    Args:
        cosines: [P] cosines of the document vectors of each pair.
        labels: [P], 1 for a match and 0 for none.

    Returns:
        [] mean over the pairs.
    """
    return F.binary_cross_entropy_with_logits(AMPLIFIER * cosines, labels.to(cosines.dtype))


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
        [] cross-entropy, the mean over the masked blocks; 0 where none is masked.
    """
    similarities = predicted @ blocks.T  # [B, B], eq. 4
    places = torch.arange(len(blocks), device=blocks.device)
    return F.cross_entropy(similarities, places, reduction="sum") / max(1, len(blocks))


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
        [] cross-entropy, the mean over the masked words; 0 where none is masked.
    """
    logits = F.linear(states, embedding, bias)
    return F.cross_entropy(logits, words, reduction="sum") / max(1, len(words))


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
