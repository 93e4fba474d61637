"""Where `longmatch index` encodes: the options, their checks, and the encoders they lead to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from encoder.adapter import VectorSpace, vector_space
from encoder.checkpoint import Checkpoint, is_shipped
from index.adapt import read_corpus_adapter
from index.build import BatchEncoder, encode_here
from index.distributed.cluster import ClusterOptions, check_cluster
from index.distributed.encoder_pool import open_encoder_pool
from index.distributed.encoding_actor import EncoderOrder
from service.cli.checks import OptionError, open_checkpoint
from service.cli.opening import load, with_reading
from service.cli.options import console

RAY_ADDRESS = "RAY_ADDRESS"
_CUDA = "cuda"


class Place(StrEnum):
    """Where documents are encoded."""

    LOCAL = "local"
    RAY = "ray"


OnOption = Annotated[
    Place, typer.Option("--on", help="Encode in this process, or in actors of Ray (extra `ray`).")
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        help="Of a Ray that runs: HOST:PORT, auto or ray://HOST:PORT; by default RAY_ADDRESS, or "
        "else Ray is started on this machine for this command."
    ),
]
ActorsOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="How many encoders on Ray; by default one for each machine, or share of a GPU."
    ),
]
ActorCpusOption = Annotated[
    float | None,
    typer.Option(
        min=0.01, help="CPUs that Ray reserves for each encoder; by default one a thread."
    ),
]
ActorGpusOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        help="GPUs that Ray reserves for each encoder, also a share of one; by default none, or "
        "one with --provider cuda.",
    ),
]


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """The options of the command that say what encodes, and where; see the command."""

    checkpoint: Path | None
    precision: str | None
    provider: list[str] | None
    threads: int | None
    reading_share: float | None
    cluster: ClusterOptions | None


def cluster_options(
    on: Place,
    address: str | None,
    actors: int | None,
    cpus: float | None,
    gpus: float | None,
    threads: int | None,
    provider: list[str] | None,
) -> ClusterOptions | None:
    """Return which Ray to use; None to encode in this process.

    Raises:
        ClusterError: nothing listens at its address.
        MissingExtraError: Ray is not installed.
        OptionError: options of Ray without `--on ray`.
    """
    if on is Place.LOCAL:
        given = {
            "--ray-address": address,
            "--actors": actors,
            "--actor-cpus": cpus,
            "--actor-gpus": gpus,
        }
        for name, value in given.items():
            if value is not None:
                raise OptionError(name, "is for --on ray")
        return None
    on_gpu = any(name.lower().startswith(_CUDA) for name in provider or ())
    options = ClusterOptions(
        address=address or os.environ.get(RAY_ADDRESS) or None,
        actors=actors,
        threads=threads,
        cpus=cpus,
        gpus=gpus or float(on_gpu),
    )
    check_cluster(options)
    return options


def open_encoding_checkpoint(options: EncodingOptions) -> Checkpoint:
    """Open the checkpoint, and check what is to be used of it.

    Which execution providers are there is another question on another machine.
    """
    provider = None if options.cluster else options.provider
    return open_checkpoint(options.checkpoint, options.precision, provider)


@dataclass(frozen=True, slots=True)
class Encoding:
    """What encodes the batches of a job, with the space of its document vectors."""

    encode: BatchEncoder
    space: VectorSpace
    checkpoint: Checkpoint


@contextmanager
def open_encoding(options: EncodingOptions, data: Path) -> Iterator[Encoding]:
    """Open the encoders of a job for a data directory; they end with the block.

    Raises:
        ClusterError: Ray, or an encoder on it, cannot be used.
        EncoderError, OptionError, StoreError: as `service.cli.opening.load`.
    """
    if options.cluster is None:
        loaded = load(
            options.checkpoint,
            options.precision,
            options.provider,
            options.threads,
            data,
            options.reading_share,
        )
        encode = encode_here(loaded.tokenizer, loaded.encoder)
        space = VectorSpace(loaded.encoder.fingerprint, loaded.encoder.dimension)
        yield Encoding(encode, space, loaded.checkpoint)
        return
    checkpoint = with_reading(open_encoding_checkpoint(options), data, options.reading_share)
    adapter = read_corpus_adapter(data, checkpoint)
    space = vector_space(checkpoint, adapter)
    directory = checkpoint.directory.resolve()
    order = EncoderOrder(
        checkpoint=Path(directory.name) if is_shipped(directory) else directory,
        fingerprint=space.fingerprint,
        reading_share=checkpoint.reading_share,
        precision=options.precision,
        providers=tuple(options.provider) if options.provider else None,
        threads=options.threads or 1,
    )
    console.print(f"Ray: starting encoders{_at(options.cluster)}")
    with open_encoder_pool(order, adapter, options.cluster) as pool:
        yield Encoding(pool, space, checkpoint)


def _at(options: ClusterOptions) -> str:
    return f" at {options.address}" if options.address else " on this machine"
