"""Commands of a server: serve, settings. It imports little: not every call gets so far."""

import gc
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli import checks, options
from service.settings import PREFIX, Settings
from service.threads import set_switch_interval

HostOption = Annotated[str, typer.Option(help="The address to listen on.")]
PortOption = Annotated[int, typer.Option(min=0, max=65_535, help="0 chooses a free port.")]
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000


def serve(
    data: options.DataOption = options.DEFAULT_DATA,
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
    encoder: options.EncoderOption = None,
    reranker: options.RerankerOption = None,
) -> None:
    """Serve an index over HTTP; `longmatch settings` prints all other settings."""
    checks.output_folder(data, "--data")
    checks.address(host, port)
    checks.open_checkpoint(encoder, data=data)
    if reranker:
        checks.reranker(reranker)
    given = {"data": data, "encoder": encoder, "reranker": reranker}
    begin(host, port, {name: value for name, value in given.items() if value is not None})


def begin(host: str, port: int, given: Mapping[str, Any]) -> None:
    """Serve until SIGTERM or SIGINT; what is not `given` comes from the environment."""
    settings = Settings(**given)
    gc.disable()  # while it starts: its modules and models stay
    set_switch_interval()
    from service.process import serve_http  # no other command needs the server

    serve_http(host, port, settings)


def settings() -> None:
    """Print every setting of a server: environment variable, default, meaning.

    An option of `longmatch serve` goes before the variable of the same name.
    """
    for name, field in sorted(Settings.model_fields.items()):
        default = "none" if field.default in (None, ()) else str(field.default).lower()
        typer.echo(f"{PREFIX}{name.upper()} (default: {default})\n    {field.description}")
