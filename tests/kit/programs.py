"""Programs of the system that tests need; tests/kit/system_packages.sh installs them."""

import shutil

INSTALL = "tests/kit/system_packages.sh"


def require_program(name: str, folders: str | None = None) -> str:
    """Return the path of a program, looked for in these folders, by default those of PATH.

    Raises:
        RuntimeError: it is not installed.
    """
    path = shutil.which(name, path=folders)
    if path is None:
        raise RuntimeError(f"these tests need {name}, which `make test` or {INSTALL} installs")
    return path
