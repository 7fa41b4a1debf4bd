"""The real trainer without the page around it: a worker.mjs in a bare document, spoken to in the session's protocol."""

from __future__ import annotations

import base64
import json
import time

from playwright.sync_api import Page

from e2e.conftest import REAL_MS
from posttrainllm.store.checkpoint import Checkpoint

START = """([flag, more]) => {
  window.events = [];
  window.flag = flag && window.crossOriginIsolated ? new Int32Array(new SharedArrayBuffer(4)) : null;
  window.worker = new Worker('./worker.mjs', { type: 'module' });
  worker.onmessage = ({ data }) => {
    if (data.buffer instanceof Blob) [window.blob, data.buffer] = [data.buffer, null]; // a large file: kept here
    if (data.buffer) data.buffer = encode(data.buffer);
    events.push(data);
  };
  worker.onerror = (error) => events.push({ kind: 'failed', code: 'worker', message: error.message });
  window.encode = (buffer) => {
    const bytes = new Uint8Array(buffer); let text = '';
    for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
    return btoa(text);
  };
  worker.postMessage({ kind: 'init', stop_flag: window.flag, ...more });
}"""


class Driver:
    """Requests and events of one worker on `page`, which stands on a file of the site that has no content policy."""

    def __init__(self, page: Page, url: str, shared_flag: bool = True, **more) -> None:
        """`more` goes to the worker's init: memory_64="always" or "never"."""
        self.page, self._number, self._read = page, 0, 0
        page.route("**/favicon.ico", lambda route: route.fulfill(status=204))  # a text file names no icon
        page.goto(url + "licences.txt")
        page.evaluate(START, [shared_flag, more])

    def ask(self, kind: str, **fields) -> int:
        """Send a request; returns its id. `data=bytes` travels as its buffer."""
        self._number += 1
        data = fields.pop("data", None)
        message = {"kind": kind, "id": self._number, **fields}
        self.page.evaluate(
            """([message, data]) => {
              if (data === null) return worker.postMessage(message);
              const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
              worker.postMessage({ ...message, buffer: bytes.buffer }, [bytes.buffer]);
            }""",
            [message, None if data is None else base64.b64encode(data).decode()],
        )
        return self._number

    def ask_with_files(self, kind: str, *paths) -> int:
        """The same with files from the disk as File objects, as a person chooses them: {names, files}."""
        self._number += 1
        self.page.evaluate("document.body.append(Object.assign(document.createElement('input'), { type: 'file', multiple: true, id: 'files' }))")
        self.page.set_input_files("#files", [str(path) for path in paths])
        self.page.evaluate(
            """(message) => {
              const chosen = document.getElementById('files');
              worker.postMessage({ ...message, names: [...chosen.files].map((file) => file.name), files: [...chosen.files] });
              chosen.remove();
            }""",
            {"kind": kind, "id": self._number},
        )
        return self._number

    def wait(self, *kinds: str, seconds: float = REAL_MS / 1000, reply_to: int | None = None) -> dict:
        """The next event of one of these kinds (and, given it, to that request); a failure that is not asked for raises."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for event in self.page.evaluate("(from) => events.slice(from)", self._read):
                self._read += 1
                if event["kind"] == "failed" and "failed" not in kinds:
                    raise AssertionError(event["message"])
                if event["kind"] in kinds and reply_to in (None, event.get("reply_to")):
                    return event
            self.page.wait_for_timeout(20)
        raise AssertionError(f"no event of {kinds} within {seconds} s; last: {json.dumps(self.page.evaluate('events.slice(-3)'))[:600]}")

    def call(self, kind: str, *answers: str, **fields) -> dict:
        """Ask and wait for the answer to it."""
        return self.wait(*answers, reply_to=self.ask(kind, **fields))

    def export(self, run_id: str) -> bytes:
        """A run as the bytes of its .safetensors file."""
        return base64.b64decode(self.call("runs.export", "exported", run_id=run_id)["buffer"])

    def checkpoint(self, run_id: str) -> Checkpoint:
        """A run, exported and read back."""
        return Checkpoint.from_safetensors(self.export(run_id))


def same_state(a: Checkpoint, b: Checkpoint) -> bool:
    """Whether two runs stand at the same step with the same bits: weights, moments, data cursor."""
    groups = ((a.weights, b.weights), (a.m, b.m), (a.v, b.v))
    return (a.step, a.cursor) == (b.step, b.cursor) and all(
        left.keys() == right.keys() and all(bytes(left[name].view()) == bytes(right[name].view()) for name in left)
        for left, right in groups
    )


