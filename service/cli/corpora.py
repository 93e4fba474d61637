"""Commands that read a corpus or a document: index, watch, match, families, embed, demo."""

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from encoder.checkpoint import Checkpoint, VectorSpace, vector_space
from index.build import NO_DOCUMENT, BatchEncoder, BuildReport, build_index, encode_here
from index.corpus.demo import write_stdlib_corpus
from index.corpus.formats.files import FILE_SUFFIXES
from index.corpus.reader import Corpus, FolderPart, FollowedFolder, file_names, read_document
from index.corpus.remote import RemotePath
from index.corpus.sql import SQL_SCHEMES, SqlQuery
from index.directory.data_directory import SKIPPED_FILE, DataDirectory
from index.distributed.cluster import ClusterOptions, check_cluster
from index.distributed.encoding import EncoderOrder, open_encoders
from index.document import printable
from index.embed import embed_corpus, write_embedded_corpus
from index.errors import DataDirectoryInUseError
from index.search.calibrate import LiveScoring, open_scoring, why_no_probability
from index.search.rank import search, select_documents
from index.search.records import (
    DEFAULT_MODE,
    AlignmentOptions,
    Hit,
    Mode,
    SearchOptions,
)
from service.cli.checks import (
    OptionError,
    check_address,
    check_output_file,
    check_output_folder,
    open_checkpoint,
)
from service.cli.opening import (
    check_corpus,
    check_data_directory,
    check_document,
    check_some_document,
    encode_query,
    load,
    opened,
    read_filter,
    space_of,
    with_reading,
)
from service.cli.options import (
    DEFAULT_DATA,
    FILTER_HELP,
    INPUT_SKIPPED,
    INTERRUPTED,
    OK,
    RESUMABLE,
    CorpusArgument,
    CorpusOrUrlArgument,
    DataOption,
    EncoderOption,
    PrecisionOption,
    ProviderOption,
    ReadingShareOption,
    ThreadsOption,
    console,
    print_json,
)
from service.cli.progress import show_progress
from service.cli.serve import DEFAULT_HOST, DEFAULT_PORT, PortOption, begin
from service.map.logic import keep_map

RAY_ADDRESS = "RAY_ADDRESS"
_CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """The options of the command that say what encodes, and where; see the command."""

    encoder: str | None
    precision: str | None
    provider: list[str] | None
    threads: int | None
    reading_share: float | None
    cluster: ClusterOptions | None


def cluster_options(
    on: Literal["local", "ray"],
    address: str | None,
    actors: int | None,
    threads: int | None,
    provider: list[str] | None,
) -> ClusterOptions | None:
    """Return which Ray to use; None to encode in this process."""
    if on == "local":
        for name, value in (("--ray-address", address), ("--actors", actors)):
            if value is not None:
                raise OptionError(name, "is for --on ray")
        return None
    on_gpu = any(name.lower().startswith(_CUDA) for name in provider or ())
    options = ClusterOptions(
        address=address or os.environ.get(RAY_ADDRESS) or None,
        actors=actors,
        threads=threads,
        on_gpu=on_gpu,
    )
    check_cluster(options)
    return options


def open_encoding_checkpoint(options: EncodingOptions, data: Path) -> Checkpoint:
    """Find the encoder, and check what is to be used of it.

    Which execution providers are there is another question on another machine.
    """
    provider = None if options.cluster else options.provider
    return open_checkpoint(options.encoder, options.precision, provider, data=data)


@dataclass(frozen=True, slots=True)
class Encoding:
    """What encodes the batches of a job, with the space of its document vectors."""

    encode: BatchEncoder
    space: VectorSpace
    checkpoint: Checkpoint


@contextmanager
def open_encoding(options: EncodingOptions, data: Path) -> Iterator[Encoding]:
    """Open the encoders of a job for a data directory; they end with the block."""
    if options.cluster is None:
        loaded = load(
            options.encoder,
            options.precision,
            options.provider,
            options.threads,
            data,
            options.reading_share,
        )
        encode = encode_here(loaded)
        space = VectorSpace(loaded.fingerprint, loaded.dimension)
        yield Encoding(encode, space, loaded.checkpoint)
        return
    checkpoint = with_reading(open_encoding_checkpoint(options, data), data, options.reading_share)
    space = vector_space(checkpoint)
    order = EncoderOrder(
        encoder=checkpoint.source,
        fingerprint=space.fingerprint,
        reading_share=checkpoint.reading_share,
        precision=options.precision,
        providers=tuple(options.provider) if options.provider else None,
    )
    console.print(f"Ray: starting encoders{_at(options.cluster)}")
    with open_encoders(order, options.cluster) as encode:
        yield Encoding(encode, space, checkpoint)


def _at(options: ClusterOptions) -> str:
    return f" at {options.address}" if options.address else " on this machine"


_FAMILIES = 20  # that are listed
_ALIGNED = AlignmentOptions(budget_seconds=math.inf)  # nobody waits in a queue


def families(
    data: DataOption = DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the largest families of copies and versions; a server may be running."""
    check_data_directory(data)
    with opened(data, space_of(data), read_only=True) as directory:
        found = directory.store.families
        largest, (number, documents), pending = (
            found.largest(_FAMILIES),
            found.totals(),
            found.pending(),
        )
    if as_json:
        counts = {"families": number, "documents": documents, "pending": pending}
        print_json({**counts, "largest": [asdict(family) for family in largest]})
        return
    table = Table("family", "documents", "different texts", "first id", box=None)
    for family in largest:
        shown = (family.number, family.documents, family.texts)
        table.add_row(*map(str, shown), printable(family.first))
    Console(markup=False).print(table)
    console.print(f"{number} families of {documents} documents; {pending} documents not compared")


def index(
    corpus: CorpusOrUrlArgument,
    data: DataOption = DEFAULT_DATA,
    reading_share: ReadingShareOption = None,
    query: Annotated[
        str | None,
        typer.Option(help="Of a database: the SQL that selects id, text, title and others."),
    ] = None,
    follow_links: Annotated[
        bool,
        typer.Option("--follow-links", help="Read what symbolic links out of CORPUS lead to."),
    ] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove the documents whose files in the folder are gone."),
    ] = False,
    encoder: EncoderOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
    on: Annotated[
        Literal["local", "ray"],
        typer.Option("--on", help="Encode in this process, or in actors of Ray (extra `ray`)."),
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            envvar=RAY_ADDRESS,
            help="Of a Ray that runs: HOST:PORT, auto or ray://HOST:PORT; by default Ray is "
            "started on this machine for this command.",
        ),
    ] = None,
    actors: Annotated[
        int | None,
        typer.Option(min=1, help="How many encoders on Ray; by default one a machine or GPU."),
    ] = None,
) -> None:
    """Read a corpus into an index; run it again to resume, or to update what has changed."""
    cluster = cluster_options(on, ray_address, actors, threads, provider)
    encoders = EncodingOptions(encoder, precision, provider, threads, reading_share, cluster)
    source = _corpus_of(corpus, query, follow_links=follow_links)
    check_corpus(source)
    check_output_folder(data, "--data")
    open_encoding_checkpoint(encoders, data)
    check_some_document(source)
    try:
        with (
            open_encoding(encoders, data) as encoding,
            opened(data, encoding.space, checkpoint=encoding.checkpoint) as directory,
        ):
            built = _bring_up_to_date(directory, source, encoding, data / SKIPPED_FILE, prune=prune)
    except KeyboardInterrupt:
        console.print(RESUMABLE)
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(INPUT_SKIPPED if built.skipped else OK)


def watch(
    folder: Annotated[Path, typer.Argument(help="A folder of files.")],
    data: DataOption = DEFAULT_DATA,
    encoder: EncoderOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Index a folder with --prune, and again whenever its files change, until Ctrl-C or SIGTERM.

    The index is open while it is brought up to date: between, commands and a server may use it, and
    as long as these write, the changes wait.
    """
    if not folder.is_dir():
        raise OptionError("FOLDER", f"{folder}: is not a folder")
    check_corpus(folder, "FOLDER")
    check_output_folder(data, "--data")
    whole = FolderPart(folder.resolve())
    if whole.path.is_relative_to(data.resolve()):
        raise OptionError("--data", f"{data}: the folder to watch lies in it")
    options = EncodingOptions(encoder, precision, provider, threads, None, None)
    open_encoding_checkpoint(options, data)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with open_encoding(options, data) as encoding:
            report: Path | None = data / SKIPPED_FILE
            for part in _changes_of(whole.path, data.resolve()):
                if next(file_names(whole), None):
                    with _opened_when_free(data, encoding) as directory:
                        _bring_up_to_date(directory, part, encoding, report, prune=True)
                else:  # a disk that is not mounted looks like this, too
                    console.print(f"{folder}: {NO_DOCUMENT}; nothing is removed")
                report = None  # it keeps what the first pass over the whole folder skipped
    except KeyboardInterrupt:
        console.print("stopped")


_RETRY_SECONDS = 0.5


@contextmanager
def _opened_when_free(data: Path, encoding: Encoding) -> Iterator[DataDirectory]:
    """Open a data directory for a block, as soon as no other process has it open for writing."""
    waiting = False
    with ExitStack() as open_files:
        while True:
            directory = opened(data, encoding.space, checkpoint=encoding.checkpoint)
            try:
                found = open_files.enter_context(directory)
                break
            except DataDirectoryInUseError as error:
                if not waiting:
                    console.print(f"{error}; the changes wait")
                waiting = True
                time.sleep(_RETRY_SECONDS)
        yield found


_REST_MS = 500  # without a change, for a file that is being written


def _changes_of(folder: Path, data: Path) -> Iterator[FolderPart]:
    """Yield the whole folder, and then what changes in it, but for hidden files and `data`."""
    from watchfiles import watch as watch_files  # for this command alone

    def is_read(_: object, name: str) -> bool:
        path = Path(name)
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") for part in parts)
        return bool(parts) and not hidden and not path.is_relative_to(data)

    # It listens from its first answer on, which comes soon as it also answers without a change.
    listening = watch_files(
        folder, watch_filter=is_read, step=_REST_MS, rust_timeout=_REST_MS, yield_on_timeout=True
    )
    next(listening)
    yield FolderPart(folder)
    for changes in listening:
        if changes:
            names = {Path(name).relative_to(folder).as_posix() for _, name in changes}
            yield FolderPart(folder, names)


def _bring_up_to_date(
    directory: DataDirectory,
    source: Corpus,
    encoding: Encoding,
    report: Path | None,
    *,
    prune: bool,
) -> BuildReport:
    """Index a corpus into an open data directory, measure its scores, and print what was done."""
    data = directory.path
    with show_progress(console, report) as progress:
        built = build_index(source, directory, encoding.encode, progress, prune=prune)
        LiveScoring(encoding.checkpoint, directory).measure(progress)
        keep_map(directory.store, progress)
    console.print(
        f"{data}: {len(directory.store)} documents; {built.encoded} encoded ({built.tokens} "
        f"tokens, {built.tokens_left_out} left out), {built.unchanged} unchanged, "
        f"{built.skipped} skipped, {built.gone} gone{' and removed' if prune else ''}",
    )
    return built


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
    encoder: EncoderOption = None,
    precision: PrecisionOption = None,
) -> None:
    """Print the documents of an index that match a file, best first; a server may be running."""
    check_document(file)
    check_data_directory(data)
    options = SearchOptions(
        top_k=top_k,
        mode=mode,
        where=None if where is None else read_filter(where),
        exclude=tuple(exclude or ()),
        collapse=collapse,
        alignment=_ALIGNED if align else None,
    )
    loaded = load(encoder, precision, data=data)
    document = read_document(file)
    blocks = loaded.read(document.text)
    with opened(data, loaded, read_only=True) as directory:
        documents = len(directory.store)
        scoring = open_scoring(loaded.checkpoint, data, documents)
        answer = search(
            directory,
            encode_query(loaded, blocks, document.text, document.title),
            options,
            fusion=scoring.fusion,
            calibrator=scoring.calibrator,
            among=select_documents(directory, options),
        )
    why = why_no_probability(scoring.calibrator, answer.scored_as)
    if as_json:
        print_json(
            {
                "matches": [_described(hit) for hit in answer.hits],
                "receipt": asdict(blocks.receipt),
                "scored_as": answer.scored_as,
                "calibration": scoring.calibrator.version,
                "no_probability": why,
            }
        )
        return
    table = Table("score", "probability", "id", "title", "terms", box=None)
    for hit in answer.hits:
        probability = "-" if hit.probability is None else f"{hit.probability:.2f}"
        if hit.relevant is False:
            probability += " (chance)"
        terms = " ".join(term.term for term in hit.terms)
        shown = (printable(text) for text in (hit.id, hit.title, terms))
        table.add_row(f"{hit.score:.4f}", probability, *shown)
    Console(markup=False).print(table)
    if why is not None:
        console.print(f"no probabilities: {why}")
    if answer.hits and not any(hit.relevant is not False for hit in answer.hits):
        console.print("nothing matches: no score rises above the level of chance")
    receipt = blocks.receipt
    encoded_part = f", encoded {receipt.tokens_encoded}" if blocks.selected is not None else ""
    console.print(f"read {receipt.tokens_read} of {receipt.tokens} tokens{encoded_part}")


def embed(
    corpus: CorpusArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    reading_share: ReadingShareOption = None,
    encoder: EncoderOption = None,
    precision: PrecisionOption = None,
) -> None:
    """Write the document vectors of a corpus: ids, vectors [N, D], tokens, tokens_read."""
    check_corpus(corpus)
    check_output_file(output)
    loaded = load(encoder, precision, reading_share=reading_share)
    with show_progress(console) as progress:
        embedded = embed_corpus(corpus, loaded, progress)
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


def _described(hit: Hit) -> dict[str, Any]:
    """Return a hit as it is printed; the command line reranks nothing and takes one document."""
    fields = asdict(hit)
    for name in ("first_stage_score", "like_scores", "unlike_scores"):
        del fields[name]
    return fields


def demo(port: PortOption = DEFAULT_PORT) -> None:
    """Index the documentation of Python's standard library into ./demo-data and serve it."""
    data = Path("demo-data")
    check_output_folder(data, "demo")
    check_address(DEFAULT_HOST, port)
    corpus = data / "stdlib.jsonl"
    data.mkdir(parents=True, exist_ok=True)
    console.print(f"{corpus}: {write_stdlib_corpus(corpus)} documents of this Python's modules")
    loaded = load(None, data=data)
    with opened(data, loaded) as directory, show_progress(console) as progress:
        build_index(corpus, directory, encode_here(loaded), progress)
        LiveScoring(loaded.checkpoint, directory).measure(progress)
    url = f"http://{DEFAULT_HOST}:{port}"
    console.print(f"""
Open {url}/ in a browser, or see in another shell which modules match asyncio.queues:

  curl -s {url}/match -H 'Content-Type: application/json' \\
       -d '{{"id": "asyncio.queues", "top_k": 5}}'

The interactive documentation of the API: {url}/docs
""")
    begin(DEFAULT_HOST, port, {"data": data})
