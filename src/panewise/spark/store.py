"""Where files are: on this machine, or in a store that pyarrow reaches as Spark does, such as S3.

Spark knows of keys, endpoints and regions from Hadoop's settings; S3's are told to pyarrow. Of other stores pyarrow has
settings of its own. What it can't reach as Spark does is read by Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType, LocalFileSystem, S3FileSystem, resolve_s3_region

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["files_in", "is_local", "s3"]

_S3 = ("s3a", "s3", "s3n")
_SOME = {"gs": "?retry_limit_seconds=5"}
"""What pyarrow is told of stores for which it would else wait long."""
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
_SECRET = ("CSE", "SSE-C")
"""What is encrypted so that a reader needs more than keys."""
_AWS = ("s3.", "s3-")
"""How the names of Amazon's own endpoints begin: which is right depends on the region."""
Setting = Callable[[str], str]
Listed = tuple[FileSystem, tuple[tuple[str, int], ...]]


def is_local(store: FileSystem) -> bool:
    """Whether files are on this machine."""
    return isinstance(store, LocalFileSystem)


def files_in(uris: Sequence[str], spark: SparkSession, options: Any) -> Listed | str:
    """The store of files, with their paths there and their sizes; or why they are left to Spark."""
    places = {(parts.scheme, parts.netloc) for parts in map(urlparse, uris)}
    if len(places) > 1:
        return "files are in several stores"
    ((scheme, host),) = places
    paths = [unquote(urlparse(uri).path) for uri in uris]
    try:
        store, root = _reached(scheme, host, spark, options)
        found = store.get_file_info([root + path for path in paths])
    except (OSError, ValueError, pa.ArrowException) as e:
        return f"pyarrow does not reach {scheme}://{host} ({str(e).splitlines()[0]})"
    gone = next((uri for uri, info in zip(uris, found, strict=True) if info.type != FileType.File), None)
    if gone is not None:
        return f"{gone} is no file {'here' if is_local(store) else 'there'}"
    # what is empty, or only about other files, Spark does not read either
    kept = [(i.path, i.size) for i in found if i.size and not i.base_name.startswith(("_", "."))]
    return (store, tuple(sorted(kept))) if kept else "all files are empty"


def _reached(scheme: str, host: str, spark: SparkSession, options: Any) -> tuple[FileSystem, str]:
    """A store, and what comes before paths in it."""
    if scheme == "file":
        return LocalFileSystem(), ""
    if scheme in _S3:
        conf = spark._jsparkSession.sessionState().newHadoopConfWithOptions(options)
        return s3(host, _settings(conf, host)), host
    store, root = FileSystem.from_uri(f"{scheme}://{host}{_SOME.get(scheme, '')}")
    return store, root.rstrip("/")


def _settings(conf: Any, bucket: str) -> Setting:
    """What Hadoop's settings say of S3: of this bucket, or of all. Keys may be in a file that it alone can read."""

    def of(name: str) -> str:
        for full in (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}"):
            found = conf.getPassword(full)
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
    elif setting("access.key"):
        given = {"access_key": setting("access.key"), "secret_key": setting("secret.key")}
        given["session_token"] = setting("session.token") or None
    if setting("encryption.algorithm").startswith(_SECRET):
        raise ValueError(f"fs.s3a.encryption.algorithm is {setting('encryption.algorithm')}")
    scheme, _, place = setting("endpoint").rpartition("://")
    region = setting("endpoint.region")
    if place and not (place.startswith(_AWS) and "amazonaws.com" in place):
        secure = setting("connection.ssl.enabled").lower() != "false"
        given |= {"endpoint_override": place, "scheme": scheme or ("https" if secure else "http")}
        region = region or "us-east-1"
    return S3FileSystem(region=region or resolve_s3_region(bucket), **given)
