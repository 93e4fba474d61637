"""Commands of API keys."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from index.directory.collections import NAME_PATTERN, collection_path, is_collection_name
from index.directory.data_directory import KEY_FILE
from index.document import printable
from service.cli import checks, options
from service.cli.checks import OptionError, read_option
from service.cli.options import console
from service.keys import SCOPES, ApiKey, change_keys, make_key, read_keys

keys = typer.Typer(
    help="Make, list and revoke API keys. A running server follows at once.",
    no_args_is_help=True,
    add_completion=False,
)

_DAYS = 36_500


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Whose key it is; for lists and logs.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(SCOPES)}; may be repeated, read by default."),
    ] = None,
    expires_days: Annotated[
        int | None, typer.Option(min=1, max=_DAYS, help="Invalid after; by default never.")
    ] = None,
    collection: Annotated[
        str | None, typer.Option(help="The only collection that it sees; by default all.")
    ] = None,
    data: options.DataOption = options.DEFAULT_DATA,
) -> None:
    """Make a key and print it. It is shown only now.

    From the first key on, every request to a server of this data directory needs one.
    """
    checks.output_folder(data, "--data")
    given = set(scope or ["read"])
    for unknown in given.difference(SCOPES):
        raise OptionError("--scope", f"{unknown!r} is none of {', '.join(SCOPES)}")
    scopes = frozenset(name for name in SCOPES if name in given)
    expires = None
    if expires_days is not None:
        expires = datetime.now(UTC) + timedelta(days=expires_days)
    if collection is not None and not is_collection_name(collection):
        raise OptionError("--collection", f"{collection!r} is no name: it takes {NAME_PATTERN}")
    key, token = read_option("NAME", make_key, name, scopes, expires, collection)
    data.mkdir(parents=True, exist_ok=True)
    change_keys(data / KEY_FILE, lambda known: known.update({key.id: key}))
    typer.echo(token)
    console.print("Keep it now: only its hash is stored.")
    if collection is not None and not collection_path(data, collection).exists():
        console.print(f"There is no collection {collection} yet: until then, the key sees nothing.")


@keys.command("list")
def list_keys(data: options.DataOption = options.DEFAULT_DATA) -> None:
    """List the keys: id, state, scopes, when made, until when, collection, name; no secrets."""
    found = read_keys(data / KEY_FILE)
    if found is None:
        console.print("no keys: requests need none")
        return
    now = datetime.now(UTC)
    for key in found.values():
        made = key.created.isoformat(timespec="seconds")
        until = "-" if key.expires is None else key.expires.isoformat(timespec="seconds")
        state = "expired" if key.expired(now) else "valid"
        scopes = ",".join(name for name in SCOPES if name in key.scopes)
        shown = [key.id, state, scopes, made, until, key.collection or "-", key.name]
        typer.echo(printable("  ".join(shown)))


@keys.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(help="As `longmatch keys list` shows it.")],
    data: options.DataOption = options.DEFAULT_DATA,
) -> None:
    """Revoke a key: requests with it are refused from now on."""

    def remove(known: dict[str, ApiKey]) -> None:
        if known.pop(key_id, None) is None:
            raise OptionError("KEY_ID", f"{data / KEY_FILE} has no key {key_id!r}")

    if read_keys(data / KEY_FILE) is None:
        raise OptionError("KEY_ID", f"{data / KEY_FILE} does not exist")
    change_keys(data / KEY_FILE, remove)
