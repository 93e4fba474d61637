#!/usr/bin/env bash
# Install the programs of the system that tests need: system_packages.sh PROGRAM...
# Does nothing for those that are there.
set -euo pipefail

declare -A package=([redis-server]=redis-server [promtool]=prometheus
    [chromium-headless-shell]=chromium-headless-shell
    [nginx]=nginx [pg_ctlcluster]=postgresql [openssl]=openssl [tesseract]=tesseract-ocr)
declare -A purpose=(
    [redis-server]="tests of limits, caches and jobs run against a real Redis"
    [chromium-headless-shell]="tests of the comparison page read it in a real browser"
    [promtool]="tests of the alerts run them"
    [nginx]="the check of deploy/cluster reads its configuration"
    [openssl]="tests of TLS make certificates with it"
    [tesseract]="tests of scanned files read them with it"
    [pg_ctlcluster]="tests of queries to databases run against a real PostgreSQL"
)
# The whole browser does as well, with three times the processor time for each page.
declare -A instead=([chromium-headless-shell]=chromium)

missing=()
for program in "$@"; do
    if [[ -z ${package[$program]:-} ]]; then
        echo "$0: unknown program $program; known: ${!package[*]}" >&2
        exit 2
    fi
    if ! command -v "$program" "${instead[$program]:-$program}" >/dev/null; then
        missing+=("${package[$program]}")
        echo "$program is missing (Debian's package ${package[$program]}): ${purpose[$program]}." >&2
    fi
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
    echo "Install what is missing and run this again; on Debian: apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "Installing ${missing[*]} by apt-get ..." >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends "${missing[@]}"
