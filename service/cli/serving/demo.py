"""`longmatch demo`."""

from pathlib import Path
from typing import Annotated

import typer

from index.build import build_index, encode_here
from index.corpus.demo import write_stdlib_corpus
from service.cli.checks import check_address, check_output_folder
from service.cli.opening import load, opened
from service.cli.options import console
from service.cli.progress import show_progress
from service.cli.serving.serve import DEFAULT_HOST, DEFAULT_PORT, HostOption, PortOption, begin


def demo(
    data: Annotated[Path, typer.Option(help="The data directory of the demonstration.")] = Path(
        "demo-data"
    ),
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
) -> None:
    """Index the documentation of Python's standard library and serve it."""
    check_output_folder(data, "--data")
    check_address(host, port)
    corpus = data / "stdlib.jsonl"
    data.mkdir(parents=True, exist_ok=True)
    console.print(f"{corpus}: {write_stdlib_corpus(corpus)} documents of this Python's modules")
    loaded = load(None, None, None, None, data)
    with opened(data, loaded.encoder) as directory, show_progress(console) as progress:
        build_index(corpus, directory, encode_here(loaded.tokenizer, loaded.encoder), progress)
    url = f"http://{host}:{port}"
    console.print(f"""
Which modules match the documentation of asyncio.queues? In another shell:

  curl -s {url}/match -H 'Content-Type: application/json' \\
       -d '{{"id": "asyncio.queues", "top_k": 5}}'

The interactive documentation of the API: {url}/docs
The page, to match a document in a browser: {url}/
""")
    begin(host, port, {"data": data})
