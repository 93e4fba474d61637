"""A retriever for LangChain: `pip install langchain-core`."""

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from longmatch.client import Client
from longmatch.retrieval import retrieve
from longmatch.search import MatchOptions


class LongmatchRetriever(BaseRetriever):
    """Finds the whole documents that match a text, which may be a whole document itself.

    Attributes:
        client: of the server, or of an open library.
        options: of the match.
    """

    client: Client
    options: MatchOptions | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [
            Document(id=found.id, page_content=found.text, metadata=found.metadata)
            for found in retrieve(self.client, query, self.options)
        ]
