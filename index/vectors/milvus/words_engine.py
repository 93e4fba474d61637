"""The collections of words of one data directory in a Milvus.

There is one, `longmatchwords_OWNER_IDENTITY`: the owner is that of the vectors, see
`index.vectors.milvus.engine`, the identity that of the tables of words in the store.
"""

import logging
from dataclasses import dataclass

from index.errors import VectorEngineError
from index.vectors.milvus.connection import MilvusConnection
from index.vectors.milvus.word_collection import WordCollection

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WordsEngine:
    """An open Milvus, and whose words it holds."""

    connection: MilvusConnection
    owner: str

    def collection(self, identity: str) -> WordCollection:
        """Return the collection of a store, which may be missing."""
        return WordCollection(self.connection, f"{self._prefix}{identity[:16]}")

    def open(self, identity: str, *, make: bool) -> WordCollection:
        """Open the collection of a store; make it anew where it is missing or cannot be used.

        Raises:
            VectorEngineError: Milvus does not answer; or, unless `make`, there is none.
        """
        collection = self.collection(identity)
        try:
            if collection.exists():
                collection.load()
                collection.held()
                return collection
        except VectorEngineError as error:
            if not error.answered or not make:
                raise
            _log.warning("making the words in Milvus again: %s", error)
            collection.drop()
        if not make:
            raise VectorEngineError(f"{self.connection.address}: has no words of this store yet")
        collection.make()
        return collection

    def drop_others(self, identity: str | None = None) -> None:
        """Drop the collections of words of this data directory but that of a store; never fails."""
        kept = None if identity is None else self.collection(identity).name
        try:
            for name in self.connection.call("list_collections"):
                if name.startswith(self._prefix) and name != kept:
                    _log.info("dropping the collection %s, which is no longer used", name)
                    self.connection.call("drop_collection", name)
        except VectorEngineError as error:  # they only take room
            _log.warning("words that are no longer used are left in Milvus: %s", error)

    @property
    def _prefix(self) -> str:
        return f"longmatchwords_{self.owner}_"
