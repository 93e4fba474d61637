"""The command that makes a corpus of a published data set: dataset."""

from pathlib import Path
from typing import Annotated

import typer

from index.errors import CorpusError
from service.cli.checks import OptionError, check_new_path
from service.cli.options import console
from service.cli.progress import printable, show_progress
from training.datasets.convert import DATASETS, check_dataset, convert_dataset


def dataset(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")],
    source: Annotated[Path, typer.Argument(help="The folder or file as it is distributed.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    accept_licence: Annotated[
        bool,
        typer.Option(
            "--accept-licence",
            help="You have made the agreement that the distributor of this data set asks for.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of sampled pairs and of the split.")] = 0,
) -> None:
    """Make a corpus with pairs or judgements of a published data set, as it is distributed."""
    known = DATASETS.get(name)
    if known is None:
        raise OptionError("NAME", f"{name!r} is none of {', '.join(DATASETS)}")
    check_new_path(output)
    if known.agreement and not accept_licence:
        raise OptionError("--accept-licence", f"is needed for {name}: {known.agreement}")
    try:
        check_dataset(name, source)
    except CorpusError as error:
        raise OptionError("SOURCE", error) from error
    with show_progress(console) as progress:
        counts = convert_dataset(name, source, output, seed, progress)
    pairs = ", ".join(
        f"{number['matching']} of {number['all']} {part} pairs match"
        for part, number in counts["pairs"].items()
    )
    written = [f"{counts['documents']} documents", f"{counts['judgements']} judgements", pairs]
    console.print(f"{output}: {', '.join(one for one in written if one)}")
    shared = counts["documents in pairs of two parts"]
    if shared:
        console.print(
            f"{shared} documents are in the pairs of two parts, as in the papers: train with "
            "--allow-shared-documents"
        )
    for reason, number in counts["left out"].items():
        console.print(f"left out: {number} {reason}")
    console.print(f"licence of the data: {printable(counts['licence'])}")
