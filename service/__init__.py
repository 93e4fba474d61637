"""The online service and the `longmatch` command."""
