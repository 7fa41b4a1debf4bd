"""A copy of the built site that a test may change, on a server that a test may stop, break and listen to."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import threading
from contextlib import suppress
from pathlib import Path

from tools.serve import Handler, Server


class Severable(Server):
    """A server that can go away as one does, with the connections that browsers keep open: closing alone leaves those served."""

    def __init__(self, **options) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(**options)

    def start(self) -> Severable:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def process_request(self, request, client_address) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def sever(self) -> None:
        """From now on its port refuses connections."""
        self.shutdown()
        self.server_close()
        for each in list(self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class Host:
    """Serves a changed copy of dist/ with the fake trainer and without Pyodide, on one port for its whole life.

    `asked` holds the addresses requested so far; files named in `broken` answer 500.
    """

    def __init__(self, dist: Path, folder: Path, worker: str, isolated: bool = False, path: str = "/") -> None:
        self.folder, self.isolated, self.path = folder, isolated, path
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.port = 0
        self.server: Severable | None = None
        for entry in json.loads((dist / "precache.json").read_text()):
            if not entry["url"].startswith("pyodide-"):
                target = folder / entry["url"]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(dist / entry["url"], target)
        shutil.copyfile(dist / "sw.js", folder / "sw.js")
        self.tiers = {entry["url"]: entry["tier"] for entry in json.loads((dist / "precache.json").read_text())}
        self.change("worker.mjs", worker)

    def change(self, name: str, text: str) -> None:
        """Publish a new version in which one file is other."""
        (self.folder / name).write_text(text)
        files = sorted(file for file in self.folder.rglob("*") if file.is_file() and file.name not in ("sw.js", "precache.json"))
        entries = []
        for file in files:
            url = file.relative_to(self.folder).as_posix()
            data = file.read_bytes()
            entries.append({"url": url, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "tier": self.tiers.get(url, "shell")})
        (self.folder / "precache.json").write_text(json.dumps(entries))

    def start(self) -> Host:
        host = self

        class Listening(Handler):
            def send_head(self):
                name = self.path[len(host.path) :].split("?")[0]
                host.asked.append(name)
                if name in host.broken:
                    self.send_error(500)
                    return None
                return super().send_head()

        self.server = Severable(folder=self.folder, port=self.port, path=self.path, isolated=self.isolated)
        self.server.RequestHandlerClass = Listening
        self.port = self.server.server_address[1]
        self.server.start()
        return self

    def stop(self) -> None:
        """The server is gone: its port refuses connections."""
        if self.server:
            self.server.sever()
            self.server = None

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}{self.path}"
