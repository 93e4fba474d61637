"""The parts of a path that decide about a request before it is routed."""

COLLECTIONS = "collections"
# First segments of the paths of one collection, which follow its prefix.
COLLECTION_PARTS = {
    *("match", "compare", "index", "documents", "pairs", "feedback", "jobs", "standing-queries"),
    "v1",
}


def first_segment(path: str) -> str:
    """Return the first segment of a path: "match" of "/match"."""
    return path.split("/", 2)[1] if path.startswith("/") else path


def split_path(path: str) -> tuple[str | None, str]:
    """Return the collection that a path is below, if it is, and the path in it.

    "/collections/papers/match" is "/match" of "papers"; "/collections/papers" is a path of its own.
    """
    parts = path.split("/", 4)  # "", "collections", the name, the first segment below, the rest
    below = 3
    if len(parts) <= below or parts[1] != COLLECTIONS or parts[below] not in COLLECTION_PARTS:
        return None, path
    return parts[2], "/" + "/".join(parts[below:])
