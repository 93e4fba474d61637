"""The files of a folder, at any depth, in a fixed order."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from index.document import SkippedInput

LINK_OUT = "is a link out of the corpus (`longmatch index --follow-links` follows it)"


def files_below(
    root: Path, suffixes: Sequence[str], *, follow_links: bool
) -> Iterator[str | SkippedInput]:
    """Yield the names, relative to `root`, of the files of these kinds, with `/`.

    Hidden files and folders, files of other kinds, and links to folders that are read anyway are
    ignored. A folder that cannot be read is reported; a symbolic link that leads out of `root` is
    reported, too, unless such links are followed.
    """
    real_root = real_path(root)
    seen = {real_root}
    # A stack, not recursion: a folder can be nested deeper than Python calls can.
    stack = [_children(root)]
    while stack:
        path = next(stack[-1], None)
        if path is None:
            stack.pop()
            continue
        name = path.relative_to(root).as_posix()
        known = path.name.lower().endswith(tuple(suffixes))
        try:
            folder = path.is_dir()
            if (folder or known) and not follow_links and leads_out(path, real_root):
                yield SkippedInput(printable(name), LINK_OUT)
            elif folder:
                real = real_path(path)
                read_elsewhere = path.is_symlink() and real.is_relative_to(real_root)
                if not read_elsewhere and real not in seen:
                    seen.add(real)
                    stack.append(_children(path))
            elif known:
                yield name
        except OSError as error:
            yield SkippedInput(printable(name), f"cannot be read: {error.strerror}")


def leads_out(path: Path, real_root: Path) -> bool:
    """Return whether a path is a symbolic link that leads out of a folder."""
    return path.is_symlink() and not real_path(path).is_relative_to(real_root)


def real_path(path: Path) -> Path:
    """Return a path without symbolic links, also where they lead nowhere or in a circle."""
    return Path(os.path.realpath(path))


def names_in(folder: Path) -> list[str]:
    """Return the sorted names of a folder that are not hidden."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def printable(name: str) -> str:
    """Replace what would garble a message: line breaks, control characters, bytes of no text."""
    return "".join(character if character.isprintable() else "\ufffd" for character in name)


def _children(folder: Path) -> Iterator[Path]:
    # Names, not paths, are kept for a large folder: a tenth of the memory.
    names = names_in(folder)
    return (folder / name for name in names)
