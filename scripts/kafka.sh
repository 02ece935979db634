#!/usr/bin/env bash
# Fetch a Kafka broker and Spark's connectors for Kafka and Avro, through Maven; print their two folders.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."

kafka=4.3.1
spark="$(sed -n 's/^pyspark==//p' requirements.lock)"
home="$PWD/.venv/kafka"
wanted="kafka $kafka, spark $spark"

# fetch FOLDER PROFILE -Dname=version ...
fetch() {
    local folder="$1" profile="$2"
    shift 2
    rm -rf "$folder"
    mvn -B -U -q -f scripts/kafka/pom.xml -P "$profile" "$@" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$folder" >>"$home/maven.log" 2>&1
}

# connectors CONNECTOR TOKEN AVRO: the versions of the three artifacts
connectors() {
    local jar name
    fetch "$home/spark" spark "-Dconnector.version=$1" "-Dtoken.version=$2" "-Davro.version=$3" || return 1
    for jar in "$home"/spark/*.jar; do
        name="$(basename "$jar")"
        for shipped in .venv/lib/python*/site-packages/pyspark/jars/"${name%%-[0-9]*}"-[0-9]*.jar; do
            rm -f "$jar"
        done
    done
    got="connector $1, token provider $2, avro $3"
}

if [ "$(head -n 1 "$home/.ready" 2>/dev/null)" != "$wanted" ]; then
    if ! command -v mvn >/dev/null; then
        echo "Kafka is fetched with Maven and there is no mvn: install it (Debian, Ubuntu: \`sudo apt-get install maven\`) and run this again." >&2
        exit 1
    fi
    JAVA_HOME="$(scripts/java.sh)" && export JAVA_HOME
    echo "Fetching Kafka $kafka and Spark's connectors ..." >&2
    rm -rf "$home"
    mkdir -p "$home"
    if ! fetch "$home/broker" broker "-Dkafka.version=$kafka"; then
        echo "Kafka $kafka could not be fetched; $home/maven.log says why." >&2
        exit 1
    fi
    if ! connectors "$spark" "$spark" "$spark"; then
        # the newest of each that some repositories hold; tests/kafka runs against them
        if ! connectors 4.2.0 4.1.0-preview1 4.1.1; then
            echo "Spark's connectors could not be fetched, neither for $spark nor older ones; $home/maven.log says why." >&2
            exit 1
        fi
        echo "Spark's connectors for $spark could not be fetched ($home/maven.log says why); taken instead: $got." >&2
        echo "To try again: rm -r $home" >&2
    fi
    printf '%s\n%s\n' "$wanted" "$got" >"$home/.ready"
fi
echo "$home/broker"
echo "$home/spark"
