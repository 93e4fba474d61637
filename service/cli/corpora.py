"""Commands that read a corpus or a document: index, match, families, demo."""

import math
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from encoder.checkpoint import Checkpoint, vector_space
from index.build import NO_DOCUMENT, BatchEncoder, BuildReport, build_index, encode_here
from index.corpus.demo import write_stdlib_corpus
from index.corpus.formats.files import FILE_SUFFIXES
from index.corpus.reader import Corpus, Folder, file_names, read_document
from index.corpus.remote import open_remote
from index.corpus.sql import SQL_SCHEMES, SqlQuery
from index.directory.data_directory import SKIPPED_FILE, DataDirectory
from index.distributed.cluster import ClusterOptions, check_cluster
from index.distributed.encoding import EncoderOrder, open_encoders
from index.document import printable
from index.errors import DataDirectoryInUseError
from index.search.calibrate import LiveScoring, open_scoring, why_no_probability
from index.search.records import DEFAULT_MODE, AlignmentOptions, Mode, SearchOptions
from service.cli import checks, opening, options
from service.cli.checks import OptionError, read_option
from service.cli.opening import load, opened
from service.cli.options import INPUT_SKIPPED, OK, console, print_json, results, resumable
from service.cli.progress import show_progress
from service.cli.serve import DEFAULT_HOST, DEFAULT_PORT, PortOption, begin
from service.encode import encode_alone
from service.map.logic import keep_map
from service.match.filter import parse_filter
from service.searchers import Task, perform
from service.settings import Settings


def _cluster_options(
    on: Literal["local", "ray"], address: str | None, actors: int | None
) -> ClusterOptions | None:
    """Return which Ray to use; None to encode in this process."""
    if on == "local":
        for name, value in (("--ray-address", address), ("--actors", actors)):
            if value is not None:
                raise OptionError(name, "is for --on ray")
        return None
    settings = Settings()
    on_gpu = any(name.lower().startswith("cuda") for name in settings.providers)
    cluster = ClusterOptions(address or None, actors, settings.threads, on_gpu)
    check_cluster(cluster)
    return cluster


@contextmanager
def open_encoding(checkpoint: Checkpoint, cluster: ClusterOptions | None) -> Iterator[BatchEncoder]:
    """Open what encodes the batches of a job, in this process or on Ray; it ends with the block."""
    if cluster is None:
        yield encode_here(opening.start_encoder(checkpoint))
        return
    settings = Settings()
    order = EncoderOrder(
        encoder=checkpoint.source,
        fingerprint=vector_space(checkpoint).fingerprint,
        reading_share=checkpoint.reading_share,
        precision=settings.precision,
        providers=settings.providers or None,
    )
    at = f"at {cluster.address}" if cluster.address else "on this machine"
    console.print(f"Ray: starting encoders {at}")
    with open_encoders(order, cluster) as encode:
        yield encode


def families(
    data: options.DataOption = options.DEFAULT_DATA,
    as_json: options.JsonOption = False,
) -> None:
    """Print the largest families of copies and versions; a server may be running."""
    opening.check_data_directory(data)
    with opened(data, opening.space_of(data), read_only=True) as directory:
        found = directory.store.families
        largest, pending = found.largest(20), found.pending()
        number, documents = found.totals()
    if as_json:
        counts = {"families": number, "documents": documents, "pending": pending}
        print_json({**counts, "largest": [asdict(family) for family in largest]})
        return
    table = Table("family", "documents", "different texts", "first id", box=None)
    for family in largest:
        shown = (family.number, family.documents, family.texts)
        table.add_row(*map(str, shown), printable(family.first))
    results.print(table)
    console.print(f"{number} families of {documents} documents; {pending} documents not compared")


def index(
    corpus: options.CorpusOrUrlArgument,
    data: options.DataOption = options.DEFAULT_DATA,
    reading_share: options.ReadingShareOption = None,
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
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Then index what changes in the folder, until Ctrl-C or SIGTERM."
        ),
    ] = False,
    encoder: options.EncoderOption = None,
    on: Annotated[
        Literal["local", "ray"],
        typer.Option("--on", help="Encode in this process, or in actors of Ray (extra `ray`)."),
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_ADDRESS",
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
    cluster = _cluster_options(on, ray_address, actors)
    source = _corpus_of(corpus, query, follow_links=follow_links)
    opening.check_corpus(source)
    checks.output_folder(data, "--data")
    if watch and (cluster or follow_links or not Path(corpus).is_dir()):
        raise OptionError("--watch", "is for a folder, without --follow-links and --on ray")
    if watch and Path(corpus).resolve().is_relative_to(data.resolve()):
        raise OptionError("--data", f"{data}: the folder to watch lies in it")
    checkpoint = opening.find_checkpoint(encoder, data=data, reading_share=reading_share)
    if watch:
        encode = encode_here(opening.start_encoder(checkpoint))
        _watch(Path(corpus), data, encode, checkpoint, prune=prune)
        return
    opening.check_some_document(source)
    with (
        resumable(),
        open_encoding(checkpoint, cluster) as encode,
        opened(data, checkpoint) as directory,
    ):
        report = data / SKIPPED_FILE
        built = _bring_up_to_date(directory, source, encode, checkpoint, report, prune=prune)
    raise typer.Exit(INPUT_SKIPPED if built.skipped else OK)


def _watch(
    folder: Path, data: Path, encode: BatchEncoder, checkpoint: Checkpoint, *, prune: bool
) -> None:
    """Index a folder, and again what changes in it, until Ctrl-C or SIGTERM.

    The index is open while it is brought up to date: between, commands and a server may use it, and
    as long as these write, the changes wait.
    """
    whole = Folder(folder.resolve())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        report: Path | None = data / SKIPPED_FILE
        for part in _changes_of(whole.path, data.resolve()):
            if next(file_names(whole), None):
                with _opened_when_free(data, checkpoint) as directory:
                    _bring_up_to_date(directory, part, encode, checkpoint, report, prune=prune)
            else:  # a disk that is not mounted looks like this, too
                console.print(f"{folder}: {NO_DOCUMENT}; nothing is removed")
            report = None  # it keeps what the first pass over the whole folder skipped
    except KeyboardInterrupt:
        console.print("stopped")


_RETRY_SECONDS = 0.5


@contextmanager
def _opened_when_free(data: Path, checkpoint: Checkpoint) -> Iterator[DataDirectory]:
    """Open a data directory for a block, as soon as no other process has it open for writing."""
    waiting = False
    with ExitStack() as open_files:
        while True:
            try:
                found = open_files.enter_context(opened(data, checkpoint))
                break
            except DataDirectoryInUseError as error:
                if not waiting:
                    console.print(f"{error}; the changes wait")
                waiting = True
                time.sleep(_RETRY_SECONDS)
        yield found


_REST_MS = 500  # without a change, for a file that is being written


def _changes_of(folder: Path, data: Path) -> Iterator[Folder]:
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
    yield Folder(folder)
    for changes in listening:
        if changes:
            names = {Path(name).relative_to(folder).as_posix() for _, name in changes}
            yield Folder(folder, names=names)


def _bring_up_to_date(
    directory: DataDirectory,
    source: Corpus,
    encode: BatchEncoder,
    checkpoint: Checkpoint,
    report: Path | None,
    *,
    prune: bool,
) -> BuildReport:
    """Index a corpus into an open data directory, measure its scores, and print what was done."""
    data = directory.path
    with show_progress(console, report) as progress:
        built = build_index(source, directory, encode, progress, prune=prune)
        LiveScoring(checkpoint, directory).measure(progress)
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
    data: options.DataOption = options.DEFAULT_DATA,
    top_k: Annotated[int, typer.Option(min=1, help="How many matches.")] = 10,
    mode: Annotated[Mode, typer.Option(help="Match by vectors, words, or both.")] = DEFAULT_MODE,
    where: options.FilterOption = None,
    collapse: Annotated[
        bool, typer.Option("--collapse", help="Only one match per family of copies and versions.")
    ] = False,
    as_json: options.JsonOption = False,
    encoder: options.EncoderOption = None,
) -> None:
    """Print the documents of an index that match a file, best first; a server may be running."""
    opening.check_document(file)
    opening.check_data_directory(data)
    wanted = SearchOptions(
        top_k=top_k,
        mode=mode,
        where=None if where is None else read_option("--filter", parse_filter, where),
        collapse=collapse,
        alignment=AlignmentOptions(budget_seconds=math.inf),  # nobody waits in a queue
    )
    loaded = load(encoder, data=data)
    document = read_document(file)
    query = encode_alone(loaded, document.text, document.title)
    with opened(data, loaded.checkpoint, read_only=True) as directory:
        scoring = open_scoring(loaded.checkpoint, data, len(directory.store))
        answer = perform(directory, Task(query, wanted), scoring).answer
    receipt = query.receipt
    why = why_no_probability(scoring, answer.scored_as)
    if as_json:
        print_json(
            {
                "matches": [asdict(hit) for hit in answer.hits],
                "receipt": asdict(receipt),
                "scored_as": answer.scored_as,
                "calibration": scoring.version,
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
    results.print(table)
    if why is not None:
        console.print(f"no probabilities: {why}")
    if answer.hits and not any(hit.relevant is not False for hit in answer.hits):
        console.print("nothing matches: no score rises above the level of chance")
    encoded = receipt.tokens_encoded
    encoded_part = f", encoded {encoded}" if encoded < receipt.tokens_read else ""
    console.print(f"read {receipt.tokens_read} of {receipt.tokens} tokens{encoded_part}")


def _corpus_of(name: str, query: str | None, *, follow_links: bool) -> Corpus:
    scheme, separator, _ = name.partition("://")
    if query is not None and not separator:
        raise OptionError("--query", f"{name}: is not the address of a database")
    if not separator:
        return Folder(Path(name), follow_links)
    if follow_links:
        raise OptionError("--follow-links", "is for a folder of this machine")
    if query is not None:
        return SqlQuery(name, query)
    if scheme.lower() in SQL_SCHEMES:
        raise OptionError("--query", "is missing: SQL that selects id, text, title and others")
    return read_option("CORPUS", open_remote, name)


def demo(port: PortOption = DEFAULT_PORT) -> None:
    """Index the documentation of Python's standard library into ./demo-data and serve it."""
    data = Path("demo-data")
    checks.output_folder(data, "demo")
    checks.address(DEFAULT_HOST, port)
    corpus = data / "stdlib.jsonl"
    data.mkdir(parents=True, exist_ok=True)
    console.print(f"{corpus}: {write_stdlib_corpus(corpus)} documents of this Python's modules")
    loaded = load(None, data=data)
    with opened(data, loaded.checkpoint) as directory:
        encode = encode_here(loaded)
        _bring_up_to_date(directory, corpus, encode, loaded.checkpoint, None, prune=False)
    url = f"http://{DEFAULT_HOST}:{port}"
    console.print(f"""
Open {url}/ in a browser, or see in another shell which modules match asyncio.queues:

  curl -s {url}/match -H 'Content-Type: application/json' \\
       -d '{{"id": "asyncio.queues", "top_k": 5}}'

The interactive documentation of the API: {url}/docs
""")
    begin(DEFAULT_HOST, port, {"data": data})
