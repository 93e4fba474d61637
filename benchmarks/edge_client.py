"""The core of a Qdrant server in this process, with the methods of its client that the engine uses.

A collection is one shard in a folder: the segments, filters and scores are those of the server;
sharding, replication and the network are not here. What a method does is said by the client.
"""
# ruff: noqa: D102

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import qdrant_edge as edge
from qdrant_client import QdrantClient, models
from qdrant_client.conversions import common_types as types
from qdrant_client.http.exceptions import UnexpectedResponse

_FP16 = edge.VectorStorageDatatype.Float16


class EdgeClient:
    """Collections of the core under a folder."""

    def __init__(self, folder: Path) -> None:
        """Keep the shards under a folder, which may have some."""
        self.folder = folder
        self._names = folder / "aliases.json"
        self.aliases: dict[str, str] = (
            json.loads(self._names.read_text()) if self._names.exists() else {}
        )
        self.shards = {
            path.name: edge.EdgeShard.load(str(path)) for path in folder.glob("*") if path.is_dir()
        }

    def info(self) -> models.VersionInfo:
        return models.VersionInfo(title="qdrant edge", version="1.18.0")

    def get_collections(self) -> models.CollectionsResponse:
        found = [models.CollectionDescription(name=name) for name in self.shards]
        return models.CollectionsResponse(collections=found)

    def get_aliases(self) -> models.CollectionsAliasesResponse:
        found = [
            models.AliasDescription(alias_name=alias, collection_name=name)
            for alias, name in self.aliases.items()
        ]
        return models.CollectionsAliasesResponse(aliases=found)

    def update_collection_aliases(self, operations: Sequence[Any]) -> bool:
        for operation in operations:
            if isinstance(operation, models.CreateAliasOperation):
                made = operation.create_alias
                self.aliases[made.alias_name] = made.collection_name
            else:
                del self.aliases[operation.delete_alias.alias_name]
        self._names.write_text(json.dumps(self.aliases))
        return True

    def create_collection(
        self,
        name: str,
        vectors: dict[str, models.VectorParams],
        sparse_vectors_config: dict[str, models.SparseVectorParams],
        on_disk_payload: bool = False,
    ) -> bool:
        dense = {key: _vector_params(params) for key, params in vectors.items()}
        words = edge.EdgeSparseVectorParams(on_disk=True, datatype=_FP16)
        sparse = dict.fromkeys(sparse_vectors_config, words)
        config = edge.EdgeConfig(dense, sparse, on_disk_payload=on_disk_payload)
        path = self.folder / name
        path.mkdir(parents=True)
        self.shards[name] = edge.EdgeShard.create(str(path), config)
        return True

    def delete_collection(self, name: str) -> bool:
        self._shard(name).close()
        del self.shards[name]
        shutil.rmtree(self.folder / name)
        return True

    def create_payload_index(self, name: str, field: str, kind: models.PayloadSchemaType) -> None:
        schema = getattr(edge.PayloadSchemaType, kind.value.capitalize())
        self._shard(name).update(edge.UpdateOperation.create_field_index(field, schema))

    def upsert(
        self,
        name: str,
        points: Sequence[models.PointStruct],
        *,
        wait: bool,
        update_filter: models.Filter,
    ) -> None:
        made = [
            edge.Point(
                int(point.id),
                {key: _vector(value) for key, value in cast(dict[str, Any], point.vector).items()},
                json.loads(json.dumps(point.payload)),
            )
            for point in points
        ]
        self._shard(name).update(edge.UpdateOperation.upsert_points(made, _filter(update_filter)))

    def delete(self, name: str, points: models.PointIdsList, *, wait: bool) -> None:
        ids = cast(list[Any], points.points)
        self._shard(name).update(edge.UpdateOperation.delete_points(ids))

    def retrieve(
        self, name: str, ids: Sequence[int], with_payload: Any = True, with_vectors: Any = False
    ) -> list[models.Record]:
        found = self._shard(name).retrieve(list(ids), with_payload, with_vectors)
        return [models.Record(id=r.id, payload=r.payload, vector=_sparse(r.vector)) for r in found]

    def scroll(
        self, name: str, *, offset: int, limit: int, with_payload: list[str]
    ) -> tuple[list[models.Record], Any]:
        request = edge.ScrollRequest(offset=offset, limit=limit, with_payload=with_payload)
        found, following = self._shard(name).scroll(request)
        return [models.Record(id=row.id, payload=row.payload) for row in found], following

    def count(self, name: str) -> models.CountResult:
        return models.CountResult(count=self._shard(name).count(edge.CountRequest(exact=True)))

    def query_batch_points(
        self, name: str, requests: Sequence[models.QueryRequest]
    ) -> list[types.QueryResponse]:
        batch = edge.QueryBatchRequest([_request(request) for request in requests])
        return [
            types.QueryResponse(
                points=[models.ScoredPoint(id=p.id, version=0, score=p.score) for p in points]
            )
            for points in self._shard(name).query_batch(batch)
        ]

    def close(self) -> None:
        for shard in self.shards.values():
            shard.close()

    def _shard(self, name: str) -> edge.EdgeShard:
        if name not in self.shards:
            raise UnexpectedResponse(404, "Not Found", b"no such collection", cast(Any, {}))
        return self.shards[name]


def edge_client(folder: Path) -> QdrantClient:
    """Return the core with collections under a folder, as a client of a server."""
    return cast(QdrantClient, EdgeClient(folder))


def _vector_params(params: models.VectorParams) -> edge.EdgeVectorParams:
    codes = params.quantization_config and edge.ScalarQuantizationConfig(
        edge.ScalarType.Int8, always_ram=True
    )
    return edge.EdgeVectorParams(
        params.size,
        edge.Distance.Dot,
        on_disk=True,
        datatype=_FP16,
        quantization_config=codes or None,
    )


def _vector(value: Any) -> Any:
    if isinstance(value, models.SparseVector):
        return edge.SparseVector(value.indices, value.values)
    return value


def _sparse(vectors: Any) -> Any:
    """Return the vectors of a point, which are sparse ones: no others are read."""
    given = (vectors or {}).items()
    return {
        n: models.SparseVector(indices=found.indices, values=found.values) for n, found in given
    }


def _query(query: Any, using: str | None) -> Any:
    if isinstance(query, models.RecommendQuery):
        liked = [_vector(vector) for vector in cast(Any, query.recommend.positive)]
        return edge.Query.RecommendSumScores(edge.RecommendQuery(liked, []), using)
    given = query.nearest if isinstance(query, models.NearestQuery) else query
    return edge.Query.Nearest(_vector(given), using)


def _request(request: models.QueryRequest) -> edge.QueryRequest:
    found = cast(Sequence[models.Prefetch], request.prefetch or ())
    return edge.QueryRequest(
        cast(int, request.limit),
        query=_query(request.query, request.using),
        prefetches=[
            edge.Prefetch(
                cast(int, p.limit), query=_query(p.query, p.using), filter=_filter(p.filter)
            )
            for p in found
        ],
        filter=_filter(request.filter),
        params=edge.SearchParams(
            exact=True, quantization=edge.QuantizationSearchParams(ignore=True)
        ),
    )


def _filter(given: models.Filter | None) -> edge.Filter | None:
    if given is None:
        return None
    parts = {
        name: [_condition(condition) for condition in getattr(given, name) or ()]
        for name in ("must", "should", "must_not")
    }
    return edge.Filter(**cast(Any, {name: found or None for name, found in parts.items()}))


def _condition(given: Any) -> Any:
    match given:
        case models.Filter():
            return _filter(given)
        case models.HasIdCondition():
            return edge.HasIdCondition({int(n) for n in given.has_id})
        case models.FieldCondition(match=models.MatchAny(any=values)):
            return edge.FieldCondition(given.key, match=edge.MatchAny(cast(Any, values)))
    limits = given.range.model_dump(exclude_none=True)
    return edge.FieldCondition(given.key, range=edge.RangeFloat(**limits))
