#!/usr/bin/env bash
# Fetch Hadoop's reader of S3, through Maven, for the tests that have files there; print its folder.
set -euo pipefail
cd "$(dirname "$0")/.."

hadoop="$(ls .venv/lib/python*/site-packages/pyspark/jars | sed -n 's/^hadoop-client-api-\(.*\)\.jar$/\1/p')"
home="$PWD/.venv/s3"

if [ "$(head -n 1 "$home/.ready" 2>/dev/null)" != "hadoop $hadoop" ]; then
    if ! command -v mvn >/dev/null; then
        echo "Hadoop's reader of S3 is fetched with Maven and there is no mvn: install it (Debian, Ubuntu: \`sudo apt-get install maven\`) and run this again." >&2
        exit 1
    fi
    JAVA_HOME="$(scripts/java.sh)" && export JAVA_HOME
    echo "Fetching Hadoop's reader of S3 ..." >&2
    rm -rf "$home"
    mkdir -p "$home"
    if ! mvn -B -q -f scripts/s3/pom.xml "-Dhadoop.version=$hadoop" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$home/jars" >"$home/maven.log" 2>&1; then
        echo "It could not be fetched; $home/maven.log says why." >&2
        exit 1
    fi
    for jar in "$home"/jars/*.jar; do
        name="$(basename "$jar")"
        for shipped in .venv/lib/python*/site-packages/pyspark/jars/"${name%%-[0-9]*}"-[0-9]*.jar; do
            [ -e "$shipped" ] && rm -f "$jar"
        done
    done
    echo "hadoop $hadoop" >"$home/.ready"
fi
echo "$home/jars"
