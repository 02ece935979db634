"""How much memory Spark's Python workers take."""

from __future__ import annotations

import threading

import psutil

__all__ = ["WorkerMemory"]


class WorkerMemory:
    """Watches the Python workers below this process and keeps the largest resident size of any one of them."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for process in psutil.Process().children(recursive=True):
                try:
                    if process.name().startswith("python"):
                        self.peak = max(self.peak, process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
