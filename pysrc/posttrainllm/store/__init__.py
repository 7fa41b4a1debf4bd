"""Saved runs: safetensors, checkpoints, two-slot files, and the volumes (disk, browser, memory) that hold them.

    buffers      bytes of Python, of a JavaScript engine, or of a file, in pieces of at most 4 MiB
    safetensors  the strict reader and the streaming writer
    checkpoint   everything a run is, as one .safetensors file
    slots        two alternating slots: a kill at any byte of a save leaves the last good one
    volume       what slots need of a place to keep files; disk, opfs and memory are such places
    runs         RunStore: list, create, open, rename, duplicate, delete, export, import

Nothing here imports NumPy: the page loads this before it has NumPy.
"""
