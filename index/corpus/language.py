"""The language of a text, as a field of its document that filters can use."""

_LEAST_CHARACTERS = 200  # of a text whose language is recognised
_EXAMINED = 20_000


def language_of(text: str) -> str:
    """Return the language of a text by its code of ISO 639-1; "" for a short text."""
    sample = text[:_EXAMINED]
    if sum(map(str.isalpha, sample)) < _LEAST_CHARACTERS:
        return ""
    # Imported here: its model takes half a second to load.
    import py3langid

    return str(py3langid.classify(sample)[0])
