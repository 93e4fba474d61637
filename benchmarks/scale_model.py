"""What do 1, 10 and 100 million documents need? A cost model from the figures that were measured.

    python -m benchmarks.scale_model
    python -m benchmarks.scale_model --tokens 8000 --answers-per-second 200
    python -m benchmarks.scale_model --gpu-tokens-per-second 1000000

It reads the newest records in `benchmarks/results`. Machines and prices are assumed, and options.
Every machine holds a share of the documents and answers every query for its share, and all of them
encode the corpus at first. What is modelled:

    encoding      tokens / (tokens per second and core)
    memory        vectors of the index and the copy of the words, all of it resident
    disk          texts, words, vectors and block vectors of the store, twice: a backup beside it
    an answer     processor time of hybrid mode with alignment by id at the largest size measured,
                  and for the documents beyond it what grows: vectors compared, words looked up.
                  N^(3/4) vectors are compared, as there are 4 sqrt(N) lists, of which a query
                  visits 2 sqrt(lists)

The second table compares the index with runs that the model was not fitted on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from benchmarks.common import RESULTS, markdown_table
from index.vectors.lists import choose_nlist, default_nprobe

SIZES = (1_000_000, 10_000_000, 100_000_000)
ANSWER = "hybrid, aligned, by id, 1 clients"
GIB = 2**30
MOST_MACHINES = 10_000
HOURS_A_MONTH = 730
ARTICLE_WORDS = 2_500  # of `benchmarks.speed.lexical`


@dataclass(frozen=True, slots=True)
class Measured:
    """What the records say.

    Attributes:
        tokens_per_core: tokens a second that one core encodes.
        index_bytes: memory of a vector in the index.
        words_bytes: of a word of a document, in the copy of the lexical index.
        store_bytes: of a word of a document, in the store, with its block vectors.
        words_a_block: of a sentence block.
        answer: processor seconds of an answer among `answer_documents`.
        answer_documents: for which that was measured.
        compared: seconds of comparing one vector with a query.
        looked_up: seconds by which looking up the words of a query grows with each document.
        block_dimension: of a stored block vector.
        aligned_dimension: of an aligned block.
    """

    tokens_per_core: float
    index_bytes: float
    words_bytes: float
    store_bytes: float
    words_a_block: float
    answer: float
    answer_documents: int
    compared: float
    looked_up: float
    block_dimension: int
    aligned_dimension: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What is asked for, and of what it is to be built.

    Attributes:
        tokens: of a document.
        words: of a document.
        answers: a second.
        cores: of a machine.
        memory: of a machine, bytes.
        disk: of a machine, bytes.
        busy: the share of the cores that answers may take in the mean.
    """

    tokens: float
    words: float
    answers: float
    cores: int
    memory: float
    disk: float
    busy: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a number of documents needs.

    Attributes:
        documents: how many.
        machines: how many.
        limit: what one machine less would lack.
        core_hours: of encoding the corpus.
        memory: bytes of all machines.
        disk: bytes of all machines.
        answer: processor seconds of an answer on each machine.
    """

    documents: int
    machines: int
    limit: str
    core_hours: float
    memory: float
    disk: float
    answer: float


def main(
    tokens: Annotated[float, typer.Option(min=1, help="Of a document.")] = 4_000,
    tokens_a_word: Annotated[float, typer.Option(min=1)] = 1.3,
    answers_per_second: Annotated[float, typer.Option(min=0)] = 50,
    cores: Annotated[int, typer.Option(min=1, help="Of a machine.")] = 16,
    memory_gib: Annotated[float, typer.Option(min=1, help="Of a machine.")] = 64,
    disk_gib: Annotated[float, typer.Option(min=1, help="Of a machine.")] = 2_000,
    busy: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the cores that answers may take.")
    ] = 0.5,
    machine_hour: Annotated[float, typer.Option(help="Price of a machine for an hour.")] = 0.8,
    gpu_hour: Annotated[float, typer.Option(help="Price of a GPU for an hour.")] = 3.0,
    gpu_tokens_per_second: Annotated[
        float | None, typer.Option(min=1, help="Of one GPU; none was measured here.")
    ] = None,
) -> None:
    """Print what 1, 10 and 100 million documents need, and how far the model can be trusted."""
    measured = read_measured()
    needs = Needs(
        tokens=tokens,
        words=tokens / tokens_a_word,
        answers=answers_per_second,
        cores=cores,
        memory=memory_gib * GIB,
        disk=disk_gib * GIB,
        busy=busy,
    )
    clusters = [plan(measured, needs, documents) for documents in SIZES]
    tables = [table(clusters, needs, machine_hour)]
    if gpu_tokens_per_second is not None:
        tables.append(gpu_table(needs, gpu_tokens_per_second, gpu_hour))
    tables += [blocks_table(measured, needs), check_table()]
    typer.echo("\n\n".join(tables))


def read_measured() -> Measured:
    """Read the newest records.

    Raises:
        FileNotFoundError: a benchmark has no record.
    """
    encoder, precision = newest("encoder"), newest("precision")["results"]["int8"]
    article, words = newest("scale")["results"]["article"], newest("lexical")["results"]
    searches, aligned = newest("search")["results"], newest("alignment")["settings"]["dimension"]
    own = next(one for name, one in encoder["results"].items() if name.endswith(" int8"))
    small, large = sorted(words, key=int)
    grown = _candidates(words[large]) - _candidates(words[small])
    documents = max(searches, key=int)
    visited = precision["nprobe"] / precision["nlist"] * precision["vectors"]
    return Measured(
        tokens_per_core=own["tokens_per_second"]["median"] / encoder["settings"]["threads"],
        index_bytes=precision["loaded_bytes_a_vector"],
        words_bytes=words[large]["bytes_a_document"] / ARTICLE_WORDS,
        store_bytes=article["store_bytes"] / article["words"],
        words_a_block=article["words"] / article["blocks"],
        answer=searches[documents][ANSWER]["processor_seconds_each"],
        answer_documents=int(documents),
        compared=precision["search_seconds"]["median"] / visited,
        looked_up=max(0.0, grown) / (int(large) - int(small)),
        block_dimension=aligned["blocks"],
        aligned_dimension=aligned["alignment"],
    )


def _candidates(figures: Mapping[str, Any]) -> float:
    return float(figures["searches"]["candidates"]["p50"])


def newest(benchmark: str) -> dict[str, Any]:
    """Return the newest record of a benchmark.

    Raises:
        FileNotFoundError: there is none.
    """
    records = [json.loads(path.read_text()) for path in RESULTS.glob(f"{benchmark}-2*.json")]
    if not records:
        raise FileNotFoundError(f"{RESULTS}: no record of {benchmark}")
    return max(records, key=lambda one: str(one["date"]))


def vectors_compared(documents: float) -> float:
    """Return how many vectors of an index a query is compared with, the centres of lists too."""
    nlist = choose_nlist(int(documents))
    return nlist + default_nprobe(nlist) / nlist * documents


def answer_seconds(measured: Measured, documents: float) -> float:
    """Return the processor time of an answer among so many documents."""
    base = measured.answer_documents
    vectors = max(0.0, vectors_compared(documents) - vectors_compared(base))
    looked_up = max(0.0, documents - base) * measured.looked_up
    return measured.answer + vectors * measured.compared + looked_up


def plan(measured: Measured, needs: Needs, documents: int) -> Cluster:
    """Return the fewest machines that hold and answer for so many documents."""
    memory = documents * (measured.index_bytes + needs.words * measured.words_bytes)
    disk = 2 * documents * needs.words * measured.store_bytes
    limit = "nothing"
    for machines in range(1, MOST_MACHINES):
        answer = answer_seconds(measured, documents / machines)
        taken = {
            "memory": memory / machines / needs.memory,
            "disk": disk / machines / needs.disk,
            "processors": answer * needs.answers / needs.cores / needs.busy,
        }
        most = max(taken, key=lambda name: taken[name])
        if taken[most] <= 1:
            hours = documents * needs.tokens / measured.tokens_per_core / 3600
            return Cluster(documents, machines, limit, hours, memory, disk, answer)
        limit = most
    raise ValueError(f"{documents} documents need more than {MOST_MACHINES} machines: {limit}")


def table(clusters: list[Cluster], needs: Needs, price: float) -> str:
    """Format what each number of documents needs."""
    header = ["documents", "machines", "one less lacks", "encoding, core hours", "hours, all cores"]
    header += ["memory GiB", "disk GiB", "an answer, ms", "encoding, money", "a month, money"]
    rows = []
    for one in clusters:
        hours = one.core_hours / needs.cores / one.machines
        space = [f"{one.memory / GIB:,.0f}", f"{one.disk / GIB:,.0f}"]
        money = [hours * one.machines * price, one.machines * price * HOURS_A_MONTH]
        row = [f"{one.documents:,}", str(one.machines), one.limit, f"{one.core_hours:,.0f}"]
        row += [f"{hours:,.0f}", *space, f"{1000 * one.answer:.0f}"]
        rows.append([*row, *(f"{one:,.0f}" for one in money)])
    return markdown_table(header, rows)


def gpu_table(needs: Needs, speed: float, price: float) -> str:
    """Format what encoding on GPUs would take."""
    rows = []
    for documents in SIZES:
        hours = documents * needs.tokens / speed / 3600
        rows.append([f"{documents:,}", f"{hours:,.1f}", f"{hours * price:,.0f}"])
    return markdown_table(["documents", "GPU hours", "money"], rows)


def blocks_table(measured: Measured, needs: Needs) -> str:
    """Format what the block vectors of all documents take, in several forms."""
    blocks = needs.words / measured.words_a_block
    width = measured.block_dimension
    forms = {
        "fp16 (as stored)": (2 * width, blocks),
        "int8": (width + 4, blocks),
        "aligned, int8 (as stored)": (measured.aligned_dimension + 4, blocks),
        "product quantisation, 48 bytes": (48, blocks),
        "aligned, the first 32 blocks": (measured.aligned_dimension + 4, min(blocks, 32)),
    }
    header = ["block vectors, GiB", *(f"{documents:,}" for documents in SIZES)]
    rows = [
        [name, *(f"{documents * each * count / GIB:,.0f}" for documents in SIZES)]
        for name, (each, count) in forms.items()
    ]
    return markdown_table(header, rows)


def check_table() -> str:
    """Compare the index of each record with the model, fitted on the earliest one.

    Time and memory of building and searching fp32 vectors of the sizes that were measured.
    """
    records = sorted(
        (json.loads(path.read_text()) for path in RESULTS.glob("index-2*.json")),
        key=lambda one: str(one["date"]),
    )
    fitted, others = records[0], records[1:]
    header = ["vectors", "build s", "model", "search ms", "model", "bytes a vector", "model"]
    rows = [
        _checked(int(size), one, fitted["results"])
        for record in others
        for size, one in record["results"].items()
    ]
    return markdown_table(header, rows)


def _checked(
    size: int, measured: Mapping[str, Any], fitted: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    known = max(fitted, key=int)
    largest = fitted[known]
    share = size / int(known)
    build = largest["train_seconds"] * share + largest["add_seconds"] * share**1.5
    compared = vectors_compared(size) / vectors_compared(int(known))
    search = _search(largest) * compared
    return [
        f"{size:,}",
        f"{measured['train_seconds'] + measured['add_seconds']:.1f}",
        f"{build:.1f}",
        f"{1000 * _search(measured):.2f}",
        f"{1000 * search:.2f}",
        f"{measured['resident_bytes_a_vector']:,.0f}",
        f"{largest['resident_bytes_a_vector']:,.0f}",
    ]


def _search(figures: Mapping[str, Any]) -> float:
    return float(figures["by_nprobe"][str(figures["default_nprobe"])]["seconds"]["median"])


if __name__ == "__main__":
    typer.run(main)
