"""The retrievers for LangChain, LlamaIndex and Haystack, each in its library's own pipeline."""

from collections.abc import Iterator

import pytest
from longmatch import Client, MatchOptions

from tests.clients.conftest import TEXTS
from tests.kit.process_fixtures import Server

OPTIONS = MatchOptions(top_k=2, filter={"field": "letters", "range": {"gte": 3}})


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as opened:
        yield opened


def test_langchain(client: Client) -> None:
    from longmatch.langchain import LongmatchRetriever

    chain = LongmatchRetriever(client=client, options=OPTIONS) | (lambda documents: documents)
    first, second = chain.invoke(TEXTS["ants"])
    assert (first.id, first.page_content) == ("ants", TEXTS["ants"])
    assert (first.metadata["title"], first.metadata["letters"]) == ("About ants", 4)
    assert first.metadata["passages"][0] in TEXTS["ants"]
    assert second.id.startswith("bees")


def test_llama_index(client: Client) -> None:
    from llama_index.core import Settings
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.schema import MetadataMode
    from longmatch.llama_index import LongmatchRetriever

    Settings.llm = MockLLM()  # otherwise it looks for that of OpenAI
    engine = RetrieverQueryEngine.from_args(
        LongmatchRetriever(client, OPTIONS), response_mode="no_text"
    )
    first, second = engine.query(TEXTS["ants"]).source_nodes
    assert (first.node.node_id, first.node.text) == ("ants", TEXTS["ants"])
    assert first.score > second.score
    shown = first.node.get_content(MetadataMode.LLM)
    assert "title: About ants" in shown
    assert "passages" not in shown


def test_haystack(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    from haystack import Pipeline
    from haystack.components.builders import PromptBuilder
    from longmatch.haystack import LongmatchRetriever

    pipeline = Pipeline()
    pipeline.add_component("retriever", LongmatchRetriever(client, OPTIONS))
    template = "{% for document in documents %}{{ document.meta.title }}|{% endfor %}"
    pipeline.add_component("prompt", PromptBuilder(template, required_variables=["documents"]))
    pipeline.connect("retriever.documents", "prompt.documents")
    answer = pipeline.run(
        {"retriever": {"query": TEXTS["ants"]}}, include_outputs_from={"retriever"}
    )
    assert answer["prompt"]["prompt"].startswith("About ants|About bees")
    first, _ = answer["retriever"]["documents"]
    assert (first.id, first.content) == ("ants", TEXTS["ants"])
    assert first.score == client.match(TEXTS["ants"], OPTIONS).matches[0].score
