"""Filters and metadata to try them on, and the rules of filters read plainly."""

from typing import Any

from hypothesis import strategies as st

from index.store.filters import And, Bound, Exists, Filter, Not, OneOf, Or, Range

LONG = "é" * 512
SCALARS: list[Any] = [
    *(0, 1, -1, 2, 1.0, 0.5, -0.0, 1e300, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63)),
    *(True, False, "", "1", "true", "a", "A", "ab", "ü", "\x00", "a\x00b", "𝄞", "\uffff", LONG),
]
STORED = st.recursive(
    st.sampled_from([*SCALARS, None, 2**70, -(2**70), 10**400, LONG + "é", LONG + "z"]),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from("ab"), parts),
    max_leaves=6,
)
METADATA = st.dictionaries(st.sampled_from(["a", "b", "a/b", "~", "ü"]), STORED, max_size=4)
FIELDS = st.sampled_from(["/a", "/b", "/a~1b", "/~0", "/ü", "/a/a", "/a/b", "/b/a/b", "/c"])
NUMBERS = st.sampled_from([value for value in SCALARS if type(value) in (int, float)])
TEXTS = st.sampled_from([value for value in SCALARS if type(value) is str])


def bounds(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Bound | None]:
    return st.none() | st.builds(Bound, values, st.booleans())


RANGES = (
    st.tuples(
        FIELDS,
        st.tuples(bounds(NUMBERS), bounds(NUMBERS)) | st.tuples(bounds(TEXTS), bounds(TEXTS)),
    )
    .filter(lambda pair: pair[1] != (None, None))
    .map(lambda pair: Range(pair[0], *pair[1]))
)
CONDITIONS = st.one_of(
    st.builds(OneOf, FIELDS, st.lists(st.sampled_from(SCALARS), max_size=4).map(tuple)),
    RANGES,
    st.builds(Exists, FIELDS),
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda parts: st.one_of(
        st.builds(And, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Not, parts),
    ),
    max_leaves=6,
)


def at(value: Any, names: list[str]) -> list[Any]:
    """Return what stands at a path, itself and the elements of lists; nothing for null."""
    if isinstance(value, list):
        inside = [found for part in value for found in at(part, names)]
        return inside if names else [value, *inside]
    if not names:
        return [] if value is None else [value]
    return at(value.get(names[0]), names[1:]) if isinstance(value, dict) else []


def family(value: Any) -> Any:
    return {bool: bool, int: float, float: float, str: str}.get(type(value))


def within(value: Any, where: Range) -> bool:
    return all(
        family(value) == family(bound.value)
        and (more(value, bound.value) or (bound.inclusive and value == bound.value))
        for bound, more in ((where.low, lambda a, b: a > b), (where.high, lambda a, b: a < b))
        if bound is not None
    )


def expected(where: Filter, metadata: Any) -> bool:
    """Read the rules without any of the code that is tested."""
    match where:
        case And(parts):
            return all(expected(part, metadata) for part in parts)
        case Or(parts):
            return any(expected(part, metadata) for part in parts)
        case Not(part):
            return not expected(part, metadata)
    names = [name.replace("~1", "/").replace("~0", "~") for name in where.field.split("/")[1:]]
    found = at(metadata, names)
    match where:
        case OneOf(_, values):
            return any(
                family(item) is not None and family(item) == family(value) and item == value
                for item in found
                for value in values
            )
        case Range():
            return any(within(item, where) for item in found)
    return bool(found)
