"""A File or Blob of a browser as a source: a worker reads a slice of it at a time, so nothing is ever read whole."""

from __future__ import annotations

from typing import Any

from ..errors import DataError


class BlobSource:
    """`size` and `read_at` of a Blob, by `FileReaderSync` (which only workers have). Raises DataError where the file went away."""

    def __init__(self, blob: Any, reader: Any, name: str) -> None:
        self.size = int(blob.size)
        self._blob, self._reader, self._name = blob, reader, name

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Shorter than asked only where the file ends."""
        try:
            return self._reader.readAsArrayBuffer(self._blob.slice(offset, offset + nbytes)).to_bytes()
        except Exception as error:  # a JsException: the file was changed, moved or locked since it was chosen
            raise DataError(self._name, "it can be read from the disk", f"the browser said {error}", "choose it again") from error
