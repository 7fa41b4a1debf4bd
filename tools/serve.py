"""A static server for dist/ on this machine, with the headers that give a page threads, or without, as many hosts are."""

from __future__ import annotations

import argparse
import signal
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tools import paths
from tools.shell import BuildError, say

ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".py": "text/x-python; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".whl": "application/zip",
    ".zip": "application/zip",
}


class Server(ThreadingHTTPServer):
    """Serves `folder` under `path` on localhost. Tests use it too: `with Server() as server: server.url`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path = paths.DIST, port: int = 0, path: str = "/", isolated: bool = True) -> None:
        self.folder = str(folder)
        self.path = "/" + path.strip("/") + "/" if path.strip("/") else "/"
        self.isolated = isolated
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_address[1]}{self.path}"

    def handle_error(self, request, client_address) -> None:
        if not isinstance(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # a browser that goes away is no error


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    extensions_map = {**TYPES, "": "application/octet-stream"}
    server: Server

    def __init__(self, request, address, server) -> None:
        super().__init__(request, address, server, directory=server.folder)

    def send_head(self):
        prefix = self.server.path
        if self.path == prefix.rstrip("/"):
            self.send_response(301)
            self.send_header("Location", prefix)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        if not self.path.startswith(prefix):
            self.send_error(404)
            return None
        self.path = "/" + self.path[len(prefix) :]
        return super().send_head()

    def end_headers(self) -> None:
        # Ask again each time (answered 304 when nothing changed): a rebuilt site must not be mixed with an older one.
        self.send_header("Cache-Control", "no-cache")
        if self.server.isolated:
            for name, value in ISOLATION.items():
                self.send_header(name, value)
        super().end_headers()

    def list_directory(self, path):
        self.send_error(404)  # as static hosts do

    def log_message(self, format: str, *arguments) -> None:
        pass


def main(arguments: list[str]) -> int:
    """Serve until interrupted. Raises BuildError when the port is taken."""
    parser = argparse.ArgumentParser(prog="./build.sh serve")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free one")
    parser.add_argument("--no-headers", action="store_true", help="as on a host that cannot set COOP and COEP")
    parser.add_argument("--path", default="/", help="serve under this sub-path")
    options = parser.parse_args(arguments)
    try:
        server = Server(port=options.port, path=options.path, isolated=not options.no_headers)
    except OSError as error:
        raise BuildError(
            f"Port {options.port} cannot be used ({error.strerror}); choose another with --port."
        ) from error
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with server:
        say(f"Serving dist/ at {server.url}  (Ctrl+C stops)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("")
    return 0
