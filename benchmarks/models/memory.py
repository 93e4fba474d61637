"""What the memory of an ERNIE-Doc carries, how far: python -m benchmarks.models.memory.

Documents of six segments are made up: the first tells a word, the last another, and every segment
asks for both. Which answers are learned depends on the recurrence and on the retrospective feed
(sections 3.2 and 3.3 of the ERNIE-Doc paper, rows I, III, IV and V of its table 7).
"""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
import typer
from torch.nn import functional as F

from benchmarks.common import commit, markdown_table, publish, spread
from training.models.ernie_doc import ErnieDoc, ErnieDocConfig

BENCHMARK = "ernie-doc-memory"
MODELS: dict[str, dict[str, Any]] = {
    "same layer, feed": {"recurrence": "same_layer", "retrospective": True},
    "same layer": {"recurrence": "same_layer", "retrospective": False},
    "layer below, feed": {"recurrence": "layer_below", "retrospective": True},
    "layer below": {"recurrence": "layer_below", "retrospective": False},
    "no recurrence": {"recurrence": "none", "retrospective": False},
}
SEGMENTS, TOKENS, LAYERS, WIDTH = 6, 16, 2, 64
WORDS, FILLERS = 64, 64
CLS, TELLS, ASKS = 0, (1, 2), (3, 4)  # of the word that the first segment tells, and of the last's
FIRST_WORD = 5
BATCH, TESTED = 32, 512  # documents
RATE = 1e-3


def make_documents(
    documents: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make up documents.

    Returns:
        tokens [D, S, T]; words [D, 2], that of the first and that of the last segment; and the
        places [D, S, 2] of the tokens that ask for them.
    """
    size = (documents, SEGMENTS, TOKENS)
    first_filler = FIRST_WORD + WORDS
    ids = torch.randint(first_filler, first_filler + FILLERS, size, generator=generator)
    ids[:, :, 0] = CLS
    words = torch.randint(FIRST_WORD, first_filler, (documents, 2), generator=generator)
    # Four places of pairs of tokens in each segment, in any order: two ask, two tell.
    places = 1 + 2 * torch.rand(documents, SEGMENTS, 4, generator=generator).argsort(-1)
    for which, (ask, tell, segment) in enumerate(zip(ASKS, TELLS, (0, SEGMENTS - 1), strict=True)):
        ids.scatter_(2, places[:, :, which : which + 1], ask)
        told = places[:, segment, 2 + which : 3 + which]
        ids[:, segment].scatter_(1, told, tell)
        ids[:, segment].scatter_(1, told + 1, words[:, which : which + 1])
    return ids, words, places[:, :, :2]


def train(name: str, seed: int, steps: int) -> list[list[float]]:
    """Train a model, and return the share of right answers [2, S] on documents it has not seen."""
    torch.manual_seed(seed)
    config = ErnieDocConfig(
        vocabulary_size=FIRST_WORD + WORDS + FILLERS, hidden_size=WIDTH,
        intermediate_size=4 * WIDTH, attention_heads=4, sentence_layers=LAYERS, block_length=TOKENS, memory_length=TOKENS,
        max_blocks=SEGMENTS, dimension=WIDTH, dropout=0.0, **MODELS[name],
    )  # fmt: skip
    model, head = ErnieDoc(config), torch.nn.Linear(WIDTH, WORDS)
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=RATE)
    generator = torch.Generator().manual_seed(seed)

    def answers(ids: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
        states = torch.stack(model.segment_states(ids, torch.ones_like(ids)), dim=1)
        found: torch.Tensor = head(states.gather(2, asked[..., None].expand(-1, -1, -1, WIDTH)))
        return found

    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 100, (steps - step) / (steps / 2))
        ids, words, asked = make_documents(BATCH, generator)
        truth = (words - FIRST_WORD)[:, None].expand(-1, SEGMENTS, -1)
        loss = F.cross_entropy(answers(ids, asked).flatten(0, 2), truth.flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        ids, words, asked = make_documents(TESTED, torch.Generator().manual_seed(10_000 + seed))
        right = answers(ids, asked).argmax(-1) == (words - FIRST_WORD)[:, None]
    shares: list[list[float]] = right.float().mean(0).T.tolist()
    return shares


def table(record: Mapping[str, Any]) -> str:
    """Print the answers to each question by segment, as medians over the seeds and their range."""
    parts = []
    for which, told in enumerate(("first", "last")):
        rows = [
            [name, *(str(spread([run[which][n] for run in runs])) for n in range(SEGMENTS))]
            for name, runs in record["results"].items()
        ]
        header = [f"asked in segment (told in the {told})", *map(str, range(1, SEGMENTS + 1))]
        parts.append(markdown_table(header, rows))
    return "\n\n".join(parts)


def main(
    steps: Annotated[int, typer.Option(min=2)] = 800,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    threads: Annotated[int, typer.Option(min=1)] = 2,
) -> None:
    """Train every model with every seed, and print and keep what they answer."""
    torch.set_num_threads(threads)
    source, results = commit(), {}
    for name in MODELS:
        results[name] = [train(name, seed, steps) for seed in range(seeds)]
        typer.echo(f"{name}: {results[name]}", err=True)
    settings = {
        "steps": steps, "documents of a step": BATCH, "segments": SEGMENTS, "tokens": TOKENS,
        "layers": LAYERS, "width": WIDTH, "memory": TOKENS, "words": WORDS, "rate": RATE,
        "tested": TESTED, "threads": threads,
    }  # fmt: skip
    publish(BENCHMARK, source, settings, results, table)


if __name__ == "__main__":
    typer.run(main)
