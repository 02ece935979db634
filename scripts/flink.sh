#!/usr/bin/env bash
# Install Flink, in an environment of its own beside ours (what it wants of other packages is not what we want), for
# `make bench-flink`; print its Python.
set -euo pipefail
cd "$(dirname "$0")/.."

flink=2.2.1
parquet=2.2.0
home="$PWD/.venv/flink"

if [ "$(head -n 1 "$home/.ready" 2>/dev/null)" != "$flink" ]; then
    if ! command -v mvn >/dev/null; then
        echo "Flink's reader of Parquet is fetched with Maven and there is no mvn: install it (Debian, Ubuntu: \`sudo apt-get install maven\`) and run this again." >&2
        exit 1
    fi
    JAVA_HOME="$(scripts/java.sh)" && export JAVA_HOME
    echo "Fetching Flink $flink (some minutes) ..." >&2
    rm -rf "$home"
    .venv/bin/python -m venv "$home"
    # one of Flink's dependencies is built from source, with what newer setuptools have no more
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check "setuptools<81" wheel >&2
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check "apache-flink==$flink" >&2
    # there Flink finds what it was not told of
    lib="$(echo "$home"/lib/python*/site-packages/pyflink/lib)"
    if ! mvn -B -q -U -f scripts/flink/pom.xml "-Dparquet.version=$parquet" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$lib" >"$home/maven.log" 2>&1; then
        echo "Flink's reader of Parquet could not be fetched; $home/maven.log says why." >&2
        exit 1
    fi
    echo "$flink" >"$home/.ready"
fi
echo "$home/bin/python"
