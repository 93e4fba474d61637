"""A retriever for LlamaIndex: `pip install llama-index-core`."""

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from longmatch.client import Client
from longmatch.retrieval import retrieve
from longmatch.search import MatchOptions

_NOT_TEXT = ["passages", "probability"]  # of the metadata, which goes to models with the text


class LongmatchRetriever(BaseRetriever):
    """Finds the whole documents that match a text, which may be a whole document itself."""

    def __init__(self, client: Client, options: MatchOptions | None = None) -> None:
        """Take a client of the server, or of an open library, and the options of the match."""
        super().__init__()
        self._client, self._options = client, options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(
                node=TextNode(
                    id_=found.id,
                    text=found.text,
                    metadata=found.metadata,
                    excluded_embed_metadata_keys=_NOT_TEXT,
                    excluded_llm_metadata_keys=_NOT_TEXT,
                ),
                score=found.score,
            )
            for found in retrieve(self._client, query_bundle.query_str, self._options)
        ]
