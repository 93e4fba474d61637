"""Commands that read a corpus or a document: index, match, families, embed."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from encoder.checkpoint import Checkpoint
from encoder.tokenizer import BlockTokenizer
from evaluation.encoded_corpus import embed_encoded_corpus, keep_blocks
from evaluation.experiment import adapt_embedded_corpus
from index.adapt import adapt_data_directory
from index.build import build_index
from index.corpus.formats.files import FILE_SUFFIXES
from index.corpus.reader import Corpus, FollowedFolder, read_document
from index.corpus.remote import RemotePath
from index.corpus.sql import SQL_SCHEMES, SqlQuery
from index.directory.data_directory import ADAPTER_FILE, SKIPPED_FILE, STORE_FILE
from index.embed import embed_corpus, write_embedded_corpus
from index.search.calibrator import open_calibrator
from index.search.fusion import fusion_of
from index.search.records import (
    DEFAULT_MODE,
    AlignmentOptions,
    EncodedQuery,
    Hit,
    Mode,
    SearchOptions,
)
from index.search.search import search, select_documents
from index.store.schema import read_space
from service.cli.checks import OptionError, check_output_file, check_output_folder
from service.cli.indexing.checks import (
    check_corpus,
    check_data_directory,
    check_document,
    check_enough_to_adapt,
    check_some_document,
)
from service.cli.indexing.place import (
    ActorCpusOption,
    ActorGpusOption,
    ActorsOption,
    EncodingOptions,
    OnOption,
    Place,
    RayAddressOption,
    cluster_options,
    open_encoding,
    open_encoding_checkpoint,
)
from service.cli.opening import load, opened, parse_filter
from service.cli.options import (
    DEFAULT_DATA,
    FILTER_HELP,
    INPUT_SKIPPED,
    INTERRUPTED,
    OK,
    RESUMABLE,
    BlocksOption,
    CheckpointOption,
    CorpusArgument,
    CorpusOrUrlArgument,
    DataOption,
    PrecisionOption,
    ProviderOption,
    ReadingShareOption,
    ThreadsOption,
    console,
    print_json,
)
from service.cli.progress import printable, show_progress

_ALIGNED = AlignmentOptions(budget_seconds=math.inf)  # nobody waits in a queue


def families(
    data: DataOption = DEFAULT_DATA,
    limit: Annotated[int, typer.Option(min=1, help="How many families, largest first.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the families of copies and versions in an index; a server may be running."""
    check_data_directory(data)
    with opened(data, read_space(data / STORE_FILE), read_only=True) as directory:
        found = directory.store.families
        largest, (number, documents), pending = (
            found.largest(limit),
            found.totals(),
            found.pending(),
        )
    if as_json:
        counts = {"families": number, "documents": documents, "pending": pending}
        print_json({**counts, "largest": [asdict(one) for one in largest]})
        return
    table = Table("family", "documents", "different texts", "first id", box=None)
    for one in largest:
        shown = (one.number, one.documents, one.texts)
        table.add_row(*map(str, shown), printable(one.first))
    Console(markup=False).print(table)
    console.print(f"{number} families of {documents} documents; {pending} documents not compared")


def index(
    corpus: CorpusOrUrlArgument,
    data: DataOption = DEFAULT_DATA,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="First fit the vectors to this corpus, once.")
    ] = False,
    reading_share: ReadingShareOption = None,
    query: Annotated[
        str | None,
        typer.Option(help="Of a database: the SQL that selects id, text, title and others."),
    ] = None,
    follow_links: Annotated[
        bool,
        typer.Option("--follow-links", help="Read what symbolic links out of CORPUS lead to."),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            help=f"Where all input that is skipped is listed; by default {SKIPPED_FILE} "
            "in the data directory."
        ),
    ] = None,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
    on: OnOption = Place.LOCAL,
    ray_address: RayAddressOption = None,
    actors: ActorsOption = None,
    actor_cpus: ActorCpusOption = None,
    actor_gpus: ActorGpusOption = None,
) -> None:
    """Read a corpus into an index; run it again to resume, or to update what has changed."""
    cluster = cluster_options(on, ray_address, actors, actor_cpus, actor_gpus, threads, provider)
    encoders = EncodingOptions(checkpoint, precision, provider, threads, reading_share, cluster)
    source = _corpus_of(corpus, query, follow_links=follow_links)
    check_corpus(source)
    check_output_folder(data, "--data")
    if report:
        check_output_file(report, "--report")
    plain = open_encoding_checkpoint(encoders)
    check_some_document(source)
    try:
        if adapt:
            _adapt(source, data, plain)
        with (
            open_encoding(encoders, data) as encoding,
            opened(data, encoding.space, checkpoint=encoding.checkpoint) as directory,
        ):
            with show_progress(console, report or data / SKIPPED_FILE) as progress:
                built = build_index(source, directory, encoding.encode, progress)
            documents = len(directory.store)
    except KeyboardInterrupt:
        console.print(RESUMABLE)
        raise typer.Exit(INTERRUPTED) from None
    console.print(
        f"{data}: {documents} documents; {built.encoded} encoded ({built.tokens} tokens, "
        f"{built.tokens_left_out} left out), {built.unchanged} unchanged, "
        f"{built.skipped} skipped",
    )
    raise typer.Exit(INPUT_SKIPPED if built.skipped else OK)


def match(
    file: Annotated[
        Path, typer.Argument(help=f"The document: a file of {' '.join(FILE_SUFFIXES)}.")
    ],
    data: DataOption = DEFAULT_DATA,
    top_k: Annotated[int, typer.Option(min=1, help="How many matches.")] = 10,
    mode: Annotated[Mode, typer.Option(help="Match by vectors, words, or both.")] = DEFAULT_MODE,
    where: Annotated[str | None, typer.Option("--filter", metavar="JSON", help=FILTER_HELP)] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Id of a document to leave out; may be repeated.")
    ] = None,
    collapse: Annotated[
        bool, typer.Option("--collapse", help="Only one match per family of copies and versions.")
    ] = False,
    align: Annotated[
        bool, typer.Option(help="Align the best candidates with the document, block by block.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Print the documents of an index that match a file, best first; a server may be running."""
    check_document(file)
    check_data_directory(data)
    options = SearchOptions(
        top_k=top_k,
        mode=mode,
        where=None if where is None else parse_filter(where),
        exclude=tuple(exclude or ()),
        collapse=collapse,
        alignment=_ALIGNED if align else None,
    )
    loaded = load(checkpoint, precision, provider, threads, data)
    calibrator = open_calibrator(loaded.checkpoint, data, loaded.encoder.adapter)
    document = read_document(file)
    blocks = loaded.tokenizer(document.text)
    with opened(data, loaded.encoder, read_only=True) as directory:
        encoded = loaded.encoder.encode([blocks])
        answer = search(
            directory,
            EncodedQuery(
                document.text,
                encoded.document_vectors[0],
                document.title,
                encoded.block_vectors[0],
            ),
            options,
            fusion=fusion_of(data, loaded.checkpoint, loaded.encoder.adapter),
            calibrator=calibrator,
            among=select_documents(directory, options),
        )
    matches = [_described(hit) for hit in answer.hits]
    if as_json:
        receipt_and_version = {"receipt": asdict(blocks.receipt), "calibration": calibrator.version}
        print_json({"matches": matches, **receipt_and_version})
        return
    table = Table("score", "probability", "id", "title", "terms", box=None)
    for found_match in matches:
        score, name, title = (found_match[key] for key in ("score", "id", "title"))
        probability = found_match["probability"]
        shown = "unknown" if probability is None else f"{probability:.2f}"
        terms = " ".join(term["term"] for term in found_match["terms"])
        table.add_row(f"{score:.4f}", shown, printable(name), printable(title), printable(terms))
    Console(markup=False).print(table)
    receipt = blocks.receipt
    encoded_part = f", encoded {receipt.tokens_encoded}" if blocks.selected is not None else ""
    console.print(f"read {receipt.tokens_read} of {receipt.tokens} tokens{encoded_part}")


def embed(
    corpus: CorpusArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Fit the vectors to this corpus, as `index --adapt`.")
    ] = False,
    blocks: BlocksOption = None,
    reading_share: ReadingShareOption = None,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Write the document vectors of a corpus: ids, vectors [N, D], tokens, tokens_read."""
    check_corpus(corpus)
    check_output_file(output)
    if blocks:
        check_output_folder(blocks, "--blocks")
    if adapt:
        check_enough_to_adapt(corpus)
    loaded = load(checkpoint, precision, provider, threads, None, reading_share)
    with show_progress(console) as progress:
        if blocks:
            kept = keep_blocks(corpus, blocks, loaded.encoder, progress)
            embedded = embed_encoded_corpus(kept, loaded.encoder)
        else:
            embedded = embed_corpus(corpus, loaded.tokenizer, loaded.encoder, progress)
        if adapt:
            embedded = adapt_embedded_corpus(corpus, embedded, loaded.checkpoint, progress)
    write_embedded_corpus(output, embedded)
    console.print(f"{output}: {len(embedded.ids)} documents, {embedded.skipped} skipped")
    raise typer.Exit(INPUT_SKIPPED if embedded.skipped else OK)


def _corpus_of(name: str, query: str | None, *, follow_links: bool) -> Corpus:
    scheme, separator, _ = name.partition("://")
    if query is not None and not separator:
        raise OptionError("--query", f"{name}: is not the address of a database")
    if not separator:
        return FollowedFolder(Path(name)) if follow_links else Path(name)
    if follow_links:
        raise OptionError("--follow-links", "is for a folder of this machine")
    if query is not None:
        return SqlQuery(name, query)
    if scheme.lower() in SQL_SCHEMES:
        raise OptionError("--query", "is missing: SQL that selects id, text, title and others")
    return RemotePath(name)


def _adapt(corpus: Corpus, data: Path, checkpoint: Checkpoint) -> None:
    with show_progress(console) as progress:
        found = adapt_data_directory(corpus, data, checkpoint, BlockTokenizer(checkpoint), progress)
    adapter = found.adapter
    fitted = "exists already and is kept: fitted" if found.kept else "fitted"
    console.print(
        f"{data / ADAPTER_FILE}: {fitted} to {adapter.documents} documents, {len(adapter.rows)} "
        f"words, {adapter.width} dimensions"
    )


def _described(hit: Hit) -> dict[str, Any]:
    """Return a hit as it is printed; the command line reranks nothing and takes one document."""
    fields = asdict(hit)
    for name in ("first_stage_score", "like_scores", "unlike_scores"):
        del fields[name]
    return fields
