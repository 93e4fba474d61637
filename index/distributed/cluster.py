"""A connection to a Ray cluster, or a cluster of this machine alone that lives as long as a job."""

import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from encoder.onnx_encoder import usable_cores
from index.errors import ClusterError
from index.optional_dependencies import require_extra

PURPOSE = "encoding on Ray"
CONNECT_SECONDS = 10.0
CLIENT_SCHEME = "ray://"
_OBJECT_STORE_BYTES = 512 * 2**20  # of a cluster of this machine; Ray writes more to its disk
_LOCAL_FOLDER = "/tmp"  # noqa: S108  paths of its sockets may not be long


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Where to encode, and what each encoder gets.

    Attributes:
        address: of a cluster that runs: HOST:PORT, `auto` or `ray://HOST:PORT`; None starts Ray on
            this machine.
        actors: how many encoders; by default one for each GPU, or for each machine.
        threads: of each encoder, and cores; by default those of a machine, shared by its encoders.
        on_gpu: whether each encoder gets a GPU.
    """

    address: str | None = None
    actors: int | None = None
    threads: int | None = None
    on_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Allotment:
    """How many encoders there are, and the threads and GPUs that each of them gets."""

    actors: int
    threads: int
    gpus: int = 0


def check_cluster(options: ClusterOptions) -> None:
    """Check that Ray is installed and that something listens at its address, in a moment.

    Raises:
        ClusterError: nothing does.
        MissingExtraError: Ray is not installed.
    """
    require_extra("ray", PURPOSE)
    host, port = _host_and_port(options.address)
    if port:
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
        except OSError as error:
            reason = error.strerror or error
            raise ClusterError(f"Ray at {options.address}: cannot be reached: {reason}") from error


@contextmanager
def connected(options: ClusterOptions) -> Iterator[Allotment]:
    """Connect to the cluster, or start one on this machine, during a block.

    Raises:
        ClusterError: it cannot be reached or started, or has no machine for an encoder.
    """
    with _joined(options) if options.address else _started(options):
        import ray

        try:
            resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            machines = [(int(has.get("CPU", 0)), int(has.get("GPU", 0))) for has in resources]
            yield allot(options, machines)
        finally:
            ray.shutdown()


def allot(options: ClusterOptions, machines: Sequence[tuple[int, int]]) -> Allotment:
    """Return how many encoders there are on machines of these CPUs and GPUs, and what each gets.

    Raises:
        ClusterError: the machines have no room for them, were they idle.
    """
    usable = [(cpus, gpus) for cpus, gpus in machines if cpus and gpus >= options.on_gpu]
    cpus = [machine[0] for machine in usable]
    by_gpu = sum(machine[1] for machine in usable) if options.on_gpu else len(usable)
    actors = options.actors or max(1, by_gpu)
    threads = options.threads or max(1, min([*cpus, sum(cpus) // actors], default=1))
    room = (min(cpus // threads, gpus if options.on_gpu else cpus) for cpus, gpus in usable)
    if sum(room) < actors:
        raise ClusterError(
            f"{PURPOSE}: no room for {actors} encoders with {threads} CPU"
            f"{' and 1 GPU' * options.on_gpu} each: the machines have "
            f"{'; '.join(f'{cpus} CPU, {gpus} GPU' for cpus, gpus in machines) or 'nothing'}"
        )
    return Allotment(actors, threads, int(options.on_gpu))


@contextmanager
def _joined(options: ClusterOptions) -> Iterator[None]:
    check_cluster(options)
    # Else a port of something that is no Ray, or of one that hangs, is tried for minutes.
    tries = {"RAY_NUM_REDIS_GET_RETRIES": os.environ.get("RAY_NUM_REDIS_GET_RETRIES", "3")}
    _init(f"Ray at {options.address}", tries, address=options.address)
    yield


@contextmanager
def _started(options: ClusterOptions) -> Iterator[None]:
    """Start Ray on this machine, with room for the requested encoders."""
    cores = usable_cores()
    actors = options.actors or 1
    threads = options.threads or max(1, cores // actors)
    # It listens on the loopback interface alone (the switch is named after the systems where that
    # is the default), answers callers with a random token, and reports nothing to its makers.
    environment = {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with tempfile.TemporaryDirectory(
        prefix="longmatch-ray-", dir=_LOCAL_FOLDER, ignore_cleanup_errors=True
    ) as folder:
        _init(
            "Ray on this machine",
            environment,
            address="local",
            num_cpus=max(cores, actors * threads),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=folder,
        )
        yield


def _init(where: str, environment: Mapping[str, str], **arguments: Any) -> None:
    os.environ.update(environment)
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(log_to_driver=False, configure_logging=False, **arguments)
    except Exception as error:  # the library has no common base class
        raise ClusterError(f"{where}: {reason_of(error)}") from error


def reason_of(error: BaseException) -> str:
    """Return the line of an error of Ray that says most: the first, or the last of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[-1] if any(line.startswith("File ") for line in lines) else lines[0]


def _host_and_port(address: str | None) -> tuple[str, int]:
    """Return where something must listen; port 0 where the address does not say it."""
    host, _, port = (address or "").removeprefix(CLIENT_SCHEME).rpartition(":")
    return host.strip("[]"), int(port) if port.isdecimal() else 0
