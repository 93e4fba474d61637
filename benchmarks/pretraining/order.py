"""How far the loss of segment reordering reaches: documents whose first word says where they begin.

Each document is one word that begins every document, and random words. It is cut in one chunk or
two, which may change places; which of the three permutations it is can be read from the place of
that word alone. Where the loss cannot use it, it is out of reach. Beside each loss stand the least
possible one for a reader of the whole document, and for a reader of the last segment and the memory
of the one before, which is as far as a gradient goes (equation 3 stops it at the memory).
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks.common import commit, make_record, markdown_table, write_record

if TYPE_CHECKING:
    import torch

    from training.batch import BlockTexts

BENCHMARK = "order"
PADDING, START, END, FIRST, OTHERS = 0, 1, 2, 3, 4  # tokens; random words come last
WORDS = 64
CHUNKS = 2
DOCUMENTS = 32  # of a batch
HELD_OUT = 256


@dataclass(frozen=True, slots=True)
class Reach:
    """One model.

    Attributes:
        segments: of a document.
        memory: hidden states that a layer remembers.
        length: tokens of a segment, special tokens included.
    """

    segments: int
    memory: int
    length: int = 32

    @property
    def words(self) -> int:
        """Words of a document."""
        return self.segments * (self.length - 2)

    @property
    def in_sight(self) -> int:
        """Words of the last segment, and those whose states are in its memory beside [SEP]."""
        own = self.length - 2
        return own if self.segments == 1 else own + min(own, self.memory - 1)


REACHES = (Reach(1, 16), Reach(2, 32), Reach(2, 16), Reach(4, 16))


def least_loss(words: int, in_sight: int) -> float:
    """Return the least cross-entropy (nats) of the order of one or two chunks.

    One chunk, two in their order and two that changed places have the probabilities 1/2, 1/4 and
    1/4; the first two look the same. After a change the first word is at one of `words` - 1
    places, each as likely, and out of sight it might as well be where it was.

    Args:
        words: of a document.
        in_sight: of them, the last ones.
    """
    hidden = 0.25 * max(0, words - 1 - in_sight) / (words - 1)
    alike = (0.5, 0.25, hidden)
    return sum(-share * math.log(share / sum(alike)) for share in alike if share)


def main(
    steps: Annotated[int, typer.Option(min=8)] = 400,
    threads: Annotated[int, typer.Option(min=1, help="Of PyTorch.")] = 1,
) -> None:
    """Train a small ERNIE-Doc of each reach on the order of chunks, and print its loss."""
    import torch

    torch.set_num_threads(threads)
    source = commit()
    settings = {"steps": steps, "documents": DOCUMENTS, "chunks": CHUNKS, "threads": threads}
    record = make_record(BENCHMARK, source, settings, measure(REACHES, steps))
    typer.echo(table(record))
    write_record(record)


def measure(reaches: Sequence[Reach], steps: int) -> list[dict[str, Any]]:
    """Train a model of each reach from random weights, and return their losses."""
    found = []
    for reach in reaches:
        processor = time.process_time()
        loss = train(reach, steps)
        least = {
            "whole": least_loss(reach.words, reach.words),
            "in_sight": least_loss(reach.words, reach.in_sight),
        }
        seconds = time.process_time() - processor
        found.append({**asdict(reach), "loss": loss, "least": least, "cpu_seconds": seconds})
    return found


def train(reach: Reach, steps: int) -> float:
    """Return the loss of held-out documents after so many steps from random weights."""
    import torch

    from encoder.models.ernie_doc import ErnieDoc, ErnieDocConfig
    from training.reordering import OrderHead, reorder_losses

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    config = ErnieDocConfig(
        vocabulary_size=OTHERS + WORDS,
        block_length=reach.length,
        max_blocks=reach.segments,
        hidden_size=64,
        intermediate_size=256,
        attention_heads=4,
        sentence_layers=3,
        memory_length=reach.memory,
        dimension=64,
        dropout=0.0,
    )
    model, head = ErnieDoc(config), OrderHead(config, CHUNKS)

    def loss(documents: int, draw: "torch.Generator") -> "torch.Tensor":
        texts, classes = batch(reach, documents, draw)
        nothing = torch.full_like(texts.input_ids, -1)
        return reorder_losses(model, head, texts, nothing, classes)["order"]

    parameters = [*model.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=1e-3)
    warm_up = steps // 10
    for step in range(steps):
        share = min((step + 1) / max(1, warm_up), (steps - step) / (steps - warm_up))
        optimiser.param_groups[0]["lr"] = 1e-3 * share
        optimiser.zero_grad()
        loss(DOCUMENTS, generator).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
    with torch.no_grad():
        return float(loss(HELD_OUT, torch.Generator().manual_seed(1)))


def batch(
    reach: Reach, documents: int, generator: "torch.Generator"
) -> "tuple[BlockTexts, torch.Tensor]":
    """Return segments of permuted documents, and [D] classes."""
    import torch

    from training.batch import BlockTexts
    from training.reordering import class_of, permute_chunks

    rows, classes = [], []
    special = torch.tensor([[START], [END]]).expand(-1, reach.segments)
    for _ in range(documents):
        words = torch.randint(OTHERS, OTHERS + WORDS, (reach.words,), generator=generator)
        words[0] = FIRST
        permuted, order = permute_chunks(words, CHUNKS, generator)
        cut = permuted.reshape(reach.segments, -1)
        rows.append(torch.cat([special[0][:, None], cut, special[1][:, None]], dim=1))
        classes.append(class_of(order))
    ids = torch.cat(rows)
    numbers = torch.arange(len(ids))
    places = numbers % reach.segments
    texts = BlockTexts(numbers // reach.segments, places, ids, torch.ones_like(ids))
    return texts, torch.tensor(classes)


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown; needs no torch."""
    header = ["segments", "tokens of one", "memory", "words", "loss, held out"]
    header += ["least, whole document", "least, last segment and memory", "CPU seconds"]
    rows = [
        [
            *(str(one[name]) for name in ("segments", "length", "memory")),
            str(one["segments"] * (one["length"] - 2)),
            f"{one['loss']:.2f}",
            f"{one['least']['whole']:.2f}",
            f"{one['least']['in_sight']:.2f}",
            f"{one['cpu_seconds']:.0f}",
        ]
        for one in record["results"]
    ]
    return markdown_table(header, rows)


if __name__ == "__main__":
    typer.run(main)
