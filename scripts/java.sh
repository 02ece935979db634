#!/usr/bin/env bash
# Print the home of a Java that Spark can run on (17 or newer), installing one where the system lets us.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")"

oldest=17

# The home of the Java behind one command, if it runs and is new enough.
home_of() {
    local properties version
    properties="$("$1" -XshowSettings:properties -version 2>&1)" || return 1
    version="$(sed -n 's/^ *java\.specification\.version = //p' <<<"$properties")"
    [[ "$version" =~ ^[0-9]+$ ]] && [ "$version" -ge "$oldest" ] || return 1
    sed -n 's/^ *java\.home = //p' <<<"$properties"
}

find_java() {
    local candidate
    for candidate in \
        ${JAVA_HOME:+"$JAVA_HOME/bin/java"} \
        "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java \
        /usr/java/*/bin/java \
        /opt/java/*/bin/java /opt/jdk*/bin/java \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java \
        "${HOME:-}"/.sdkman/candidates/java/*/bin/java \
        "${HOME:-}"/.jdks/*/bin/java; do
        [ -x "$candidate" ] && home_of "$candidate" && return
    done
    return 1
}

advice() {
    case "$(uname -s)" in
    Darwin) echo "\`brew install openjdk@17\`" ;;
    MINGW* | MSYS* | CYGWIN*) echo "\`winget install EclipseAdoptium.Temurin.17.JRE\`" ;;
    *)
        if command -v apt-get >/dev/null; then
            echo "\`sudo apt-get install openjdk-17-jre-headless\`"
        elif command -v dnf >/dev/null; then
            echo "\`sudo dnf install java-17-openjdk-headless\`"
        else
            echo "your system's package manager"
        fi
        ;;
    esac
}

find_java && exit
if ./apt.sh openjdk-17-jre-headless openjdk-21-jre-headless && find_java; then
    exit
fi
echo "Spark needs Java $oldest or newer and none was found: install one with $(advice), or set JAVA_HOME, and run make again." >&2
exit 1
