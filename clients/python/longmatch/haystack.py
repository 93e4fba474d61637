"""A retriever for Haystack: `pip install haystack-ai`."""

from haystack import Document, component

from longmatch.client import Client
from longmatch.retrieval import retrieve
from longmatch.search import MatchOptions


@component
class LongmatchRetriever:
    """Finds the whole documents that match a text, which may be a whole document itself."""

    def __init__(self, client: Client, options: MatchOptions | None = None) -> None:
        """Take a client of the server, or of an open library, and the options of the match."""
        self._client, self._options = client, options

    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, list[Document]]:
        """Return the documents that match, best first."""
        documents = [
            Document(id=found.id, content=found.text, meta=found.metadata, score=found.score)
            for found in retrieve(self._client, query, self._options)
        ]
        return {"documents": documents}
