"""Where files are: on this machine, or in a store that pyarrow reaches as Spark does, such as S3.

Spark knows of keys, endpoints and regions from Hadoop's settings; S3's are told to pyarrow. Of other stores pyarrow has
settings of its own. What it can't reach as Spark does is read by Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, S3FileSystem, resolve_s3_region

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["files_in", "is_local", "s3", "side_by_side", "some_files", "store_of"]

_FEW = 16
"""How many files of this machine are looked into before threads are worth their while."""
_THREADS, _AWAY = 8, 32
"""How many threads look into files of this machine, and into others, for which they wait."""
_S3 = ("s3a", "s3", "s3n")
_OTHERS = {"gs": "?retry_limit_seconds=5"}
"""Other stores that pyarrow is asked for, and what it is told so that it does not wait long where there are none."""
_PROVIDERS = "aws.credentials.provider"
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_OWN = (
    "TemporaryAWSCredentialsProvider",
    "SimpleAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "ProfileCredentialsProvider",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
)
"""What gives keys that pyarrow finds too: they are in the settings, or where it looks itself."""
_SECRETS = ("access.key", "secret.key", "session.token")
_SEALED = ("CSE", "SSE-C")
"""What is encrypted so that a reader needs more than keys."""
_KEYED = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
"""What takes keys from the settings."""
_USUAL = re.compile(r"s3([.-][a-z]{2}(-[a-z]+)+-[0-9])?\.amazonaws\.com(\.cn)?")
"""Amazon's own endpoints, of which the region says which is right; who names another one means it."""
Setting = Callable[[str], str]
Listed = tuple[FileSystem, tuple[tuple[str, int], ...]]


def is_local(store: FileSystem) -> bool:
    """Whether files are on this machine."""
    return isinstance(store, LocalFileSystem)


@contextmanager
def side_by_side(store: FileSystem, files: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """What does something with each of so many files, as `map` would."""
    if is_local(store) and files <= _FEW:
        yield map
        return
    with ThreadPoolExecutor(_THREADS if is_local(store) else _AWAY) as pool:
        yield pool.map


def files_in(uris: Sequence[str], spark: SparkSession, options: Any) -> Listed | str:
    """The store of files, with their paths there and their sizes; or why they are left to Spark."""
    places = {(parts.scheme, parts.netloc) for parts in map(urlsplit, uris)}
    if len(places) > 1:
        return "files are in several stores"
    paths = [unquote(urlsplit(uri).path) for uri in uris]
    found = store_of(uris[0], spark, options)
    if isinstance(found, str):
        return found
    store, root = found
    try:
        with side_by_side(store, len(paths)) as work:
            infos = list(work(store.get_file_info, [root + path for path in paths]))
    except (OSError, pa.ArrowException) as e:
        return _unreached(uris[0], e)
    gone = next((uri for uri, info in zip(uris, infos, strict=True) if info.type != FileType.File), None)
    if gone is not None:
        return f"{gone} is no file {'here' if is_local(store) else 'there'}"
    # what is empty, or only about other files, Spark does not read either
    kept = [(i.path, i.size) for i in infos if i.size and not i.base_name.startswith(("_", "."))]
    return (store, tuple(sorted(kept))) if kept else "all files are empty"


def some_files(store: FileSystem, path: str, deep: int = 9) -> list[str]:
    """A file or two that are there, or in a folder, or in one of its folders; none if there is none soon."""
    found = store.get_file_info(path)
    if found.type != FileType.Directory or not deep:
        return [path] if found.type == FileType.File and found.size else []
    inside = [each for each in store.get_file_info(FileSelector(path)) if not each.base_name.startswith(("_", "."))]
    files = sorted(each.path for each in inside if each.type == FileType.File and each.size)
    folders = sorted(each.path for each in inside if each.type == FileType.Directory)
    if files or not folders:
        return files[:1] + files[1:][-1:]
    return some_files(store, folders[-1], deep - 1)


def store_of(uri: str, spark: SparkSession, options: Any) -> tuple[FileSystem, str] | str:
    """The store that a file is in, and what comes before paths there; or why it is left to Spark."""
    parts = urlsplit(uri)
    try:
        return _reached(parts.scheme, parts.netloc, unquote(parts.path), spark, options)
    except (OSError, ValueError, pa.ArrowException) as e:
        return _unreached(uri, e)


def _unreached(uri: str, error: Exception) -> str:
    parts = urlsplit(uri)
    return f"pyarrow does not reach {parts.scheme}://{parts.netloc} ({str(error).splitlines()[0]})"


def _reached(scheme: str, host: str, path: str, spark: SparkSession, options: Any) -> tuple[FileSystem, str]:
    """A store, and what comes before paths in it, such as this one."""
    if scheme == "file":
        return LocalFileSystem(), ""
    if scheme in _S3:
        conf = spark._jsparkSession.sessionState().newHadoopConfWithOptions(options)
        return s3(host, _settings(conf, host)), host
    if scheme not in _OTHERS:
        raise ValueError("it is not asked to")
    hasty, root = FileSystem.from_uri(f"{scheme}://{host}{_OTHERS[scheme]}")
    hasty.get_file_info(root.rstrip("/") + path)
    store, root = FileSystem.from_uri(f"{scheme}://{host}")
    return store, root.rstrip("/")


def _settings(conf: Any, bucket: str) -> Setting:
    """What Hadoop's settings say of S3: of this bucket, or of all. Keys may be in a file that it alone can read."""

    def of(name: str) -> str:
        for full in (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}"):
            found = conf.getPassword(full) if name in _SECRETS else conf.get(full)
            if found is not None:
                return "".join(found).strip()
        return ""

    return of


def s3(bucket: str, setting: Setting) -> S3FileSystem:
    """S3 as Spark's settings (`fs.s3a.` and these names) have it.

    >>> told = {"endpoint": "http://127.0.0.1:9000", "access.key": "me", "secret.key": "mine"}
    >>> s3("bucket", lambda name: told.get(name, "")).region
    'us-east-1'
    >>> s3("bucket", lambda name: {"aws.credentials.provider": "com.example.Vault"}.get(name, ""))
    Traceback (most recent call last):
    ValueError: fs.s3a.aws.credentials.provider is com.example.Vault
    """
    given: dict[str, Any] = {}
    providers = [each.strip() for each in setting(_PROVIDERS).split(",") if each.strip()]
    names = [each.rsplit(".", 1)[-1] for each in providers]
    if names == [_ANONYMOUS]:
        given["anonymous"] = True
    elif not set(names) <= set(_OWN):
        raise ValueError(f"fs.s3a.{_PROVIDERS} is {', '.join(providers)}")
    elif setting("access.key") and (not names or set(names) & set(_KEYED)):
        given = {"access_key": setting("access.key"), "secret_key": setting("secret.key")}
        given["session_token"] = setting("session.token") or None
    if setting("encryption.algorithm").startswith(_SEALED):
        raise ValueError(f"fs.s3a.encryption.algorithm is {setting('encryption.algorithm')}")
    if setting("endpoint.fips").lower() == "true":
        raise ValueError("fs.s3a.endpoint.fips is true")
    scheme, _, place = setting("endpoint").rpartition("://")
    region = setting("endpoint.region")
    if place and not _USUAL.fullmatch(place):
        secure = setting("connection.ssl.enabled").lower() != "false"
        given |= {"endpoint_override": place, "scheme": scheme or ("https" if secure else "http")}
        region = region or "us-east-1"
    return S3FileSystem(region=region or resolve_s3_region(bucket), **given)
