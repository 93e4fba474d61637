"""Search: the matches of a document, of several, and all pairs."""
