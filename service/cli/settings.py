"""The command settings: every setting of the service, as its environment variable."""

from typing import Any

import typer

from service.settings import Settings


def settings() -> None:
    """Print every setting of a server: environment variable, default, meaning.

    An option of `longmatch serve` goes before the variable of the same name.
    """
    prefix = Settings.model_config["env_prefix"]
    for name, field in sorted(Settings.model_fields.items()):
        default = _shown(field.get_default(call_default_factory=True, validated_data={}))
        typer.echo(f"{prefix}{name.upper()} (default: {default})\n    {field.description}")


def _shown(default: Any) -> str:
    """Return a default as one writes it into the environment."""
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple | list | set | frozenset):
        return ",".join(map(str, default))
    return str(default)
