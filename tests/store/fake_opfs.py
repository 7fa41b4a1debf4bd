"""The part of a browser that opfs.py uses, in memory: typed arrays, sync access handles, directories, and their errors.

Keywords stand for the options object that Pyodide makes of them.
"""


class FakeDOMException(Exception):
    """As Pyodide's JsException: `name` says which."""

    def __init__(self, name):
        super().__init__(f"{name}: as the browser puts it")
        self.name = name


class FakeUint8Array:
    """A JavaScript Uint8Array as Pyodide shows it; `subarray` shares memory, as it does there."""

    BYTES_PER_ELEMENT = 1

    def __init__(self, memory):
        self.memory = memoryview(bytearray(memory) if isinstance(memory, int) else memory)

    @property
    def byteLength(self):
        return len(self.memory)

    def subarray(self, begin, end):
        return FakeUint8Array(self.memory[begin:end])

    def assign(self, data):
        assert memoryview(data).nbytes == len(self.memory), "Pyodide refuses another length"
        self.memory[:] = data

    def assign_to(self, target):
        assert memoryview(target).nbytes == len(self.memory), "Pyodide refuses another length"
        target[:] = self.memory

    def set(self, other):
        self.memory[:] = other.memory

    def to_bytes(self):
        return bytes(self.memory)


class FakeFile:
    """A file's bytes, and the one handle it may have."""

    def __init__(self, browser):
        self.browser, self.data, self.held = browser, bytearray(), False


class FakeHandle:
    """A FileSystemSyncAccessHandle: at most `browser.most_bytes` a call, as the standard allows."""

    def __init__(self, file):
        self.file = file

    def _open(self):
        if self.file is None:
            raise FakeDOMException("InvalidStateError")
        return self.file

    def getSize(self):
        return float(len(self._open().data))

    def read(self, view, at=0):
        piece = self._open().data[at : at + min(view.byteLength, self.file.browser.most_bytes)]
        view.memory[: len(piece)] = piece
        return len(piece)

    def write(self, view, at=0):
        file = self._open()
        count = min(view.byteLength, file.browser.most_bytes)
        file.browser.grow(max(0, at + count - len(file.data)))
        file.data.extend(bytes(max(0, at + count - len(file.data))))
        file.data[at : at + count] = view.memory[:count]
        return count

    def truncate(self, nbytes):
        data = self._open().data
        data.extend(bytes(max(0, nbytes - len(data))))
        del data[nbytes:]

    def flush(self):
        self._open()

    def close(self):
        if self.file is not None:
            self.file.held = False
        self.file = None


class FakeBlob:
    def __init__(self, data):
        self.data, self.size = data, len(data)

    def slice(self, begin, end):
        return FakeBlob(self.data[begin:end])

    async def arrayBuffer(self):
        return FakeUint8Array(bytes(self.data))


class FakeFileHandle:
    def __init__(self, file):
        self.file = file

    async def createSyncAccessHandle(self):
        if self.file.held:
            raise FakeDOMException("NoModificationAllowedError")
        self.file.held = True
        return FakeHandle(self.file)

    async def getFile(self):
        return FakeBlob(bytes(self.file.data))


class FakeDirectory:
    def __init__(self, browser):
        self.browser, self.entries = browser, {}

    async def getDirectoryHandle(self, name, create=False):
        return self._entry(name, FakeDirectory, create)

    async def getFileHandle(self, name, create=False):
        return FakeFileHandle(self._entry(name, FakeFile, create))

    def _entry(self, name, kind, create):
        if name not in self.entries:
            if not create:
                raise FakeDOMException("NotFoundError")
            self.entries[name] = kind(self.browser)
        if not isinstance(self.entries[name], kind):
            raise FakeDOMException("TypeMismatchError")
        return self.entries[name]

    async def removeEntry(self, name, recursive=False):
        folder = self._entry(name, FakeDirectory, create=False)
        assert recursive or not folder.entries
        if any(file.held for file in folder.entries.values()):
            raise FakeDOMException("NoModificationAllowedError")
        del self.entries[name]

    async def keys(self):
        for name in list(self.entries):
            yield name


class FakeBrowser:
    """An origin's storage: `limit_bytes` of quota, calls that take at most `most_bytes`."""

    def __init__(self, limit_bytes=None, most_bytes=1 << 30):
        self.limit_bytes, self.most_bytes = limit_bytes, most_bytes
        self.root = FakeDirectory(self)

    def grow(self, nbytes):
        if self.limit_bytes is not None and nbytes and self.used_bytes() + nbytes > self.limit_bytes:
            raise FakeDOMException("QuotaExceededError")

    def used_bytes(self):
        folders = [entry for entry in self.root.entries.values() if isinstance(entry, FakeDirectory)]
        return sum(len(file.data) for folder in folders for file in folder.entries.values())
