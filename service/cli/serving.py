"""Commands that serve: serve, demo."""

from pathlib import Path
from typing import Annotated

import typer

from index.build import build_index
from index.corpus.demo import write_stdlib_corpus
from service.cli.checks import (
    check_address,
    check_output_folder,
    check_reranker,
    open_checkpoint,
)
from service.cli.options import (
    DEFAULT_DATA,
    CheckpointOption,
    DataOption,
    PrecisionOption,
    ProviderOption,
    ReadingShareOption,
    RerankerOption,
    ThreadsOption,
    console,
    load,
    opened,
    with_reading,
)
from service.cli.progress import show_progress

HostOption = Annotated[str, typer.Option(help="The address to listen on.")]
PortOption = Annotated[int, typer.Option(min=0, max=65_535, help="0 chooses a free port.")]
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000


def serve(
    data: DataOption = DEFAULT_DATA,
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
    reranker: RerankerOption = None,
    reading_share: ReadingShareOption = None,
) -> None:
    """Serve an index over HTTP; all other settings are LONGMATCH_ variables."""
    from service.process import serve_http  # the other commands do not need FastAPI

    check_output_folder(data, "--data")
    check_address(host, port)
    with_reading(open_checkpoint(checkpoint, precision, provider), None, reading_share)
    if reranker:
        check_reranker(reranker)
    given = {
        "data": data,
        "checkpoint": checkpoint,
        "precision": precision,
        "providers": tuple(provider) if provider else None,
        "threads": threads,
        "reranker": reranker,
        "reading_share": reading_share,
    }
    serve_http(host, port, {name: value for name, value in given.items() if value is not None})


def demo(
    data: Annotated[Path, typer.Option(help="The data directory of the demonstration.")] = Path(
        "demo-data"
    ),
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
) -> None:
    """Index the documentation of Python's standard library and serve it."""
    from service.process import serve_http

    check_output_folder(data, "--data")
    check_address(host, port)
    corpus = data / "stdlib.jsonl"
    data.mkdir(parents=True, exist_ok=True)
    console.print(f"{corpus}: {write_stdlib_corpus(corpus)} documents of this Python's modules")
    loaded = load(None, None, None, None, data)
    with opened(data, loaded.encoder) as directory, show_progress(console) as progress:
        build_index(corpus, directory, loaded.tokenizer, loaded.encoder, progress)
    url = f"http://{host}:{port}"
    console.print(f"""
Which modules match the documentation of asyncio.queues? In another shell:

  curl -s {url}/match -H 'Content-Type: application/json' \\
       -d '{{"id": "asyncio.queues", "top_k": 5}}'

The interactive documentation of the API: {url}/docs
""")
    serve_http(host, port, {"data": data})
