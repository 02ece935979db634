"""What the tests send through Kafka."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["AVRO", "NOON"]

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
AVRO = {
    "type": "record",
    "name": "reading",
    "fields": [
        {"name": "device", "type": "int"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "value", "type": "double"},
    ],
}
