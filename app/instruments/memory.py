"""Sixteen bytes, seen as bytes, as 32-bit floats and as 32-bit integers; and a view that goes stale. Setting: value."""

import struct

import lesson_draw as draw
from dom import button, make

COUNT = 4


def build(place, settings):
    now = {"at": 1, "value": float(settings.get("value", "1.5")), "stale": False, "pages": 1}
    memory = bytearray(4 * COUNT)
    rows = make("div", cls="memory-rows")
    place.appendChild(rows)

    def line(label, count):
        rows.appendChild(make("span", label, cls="memory-label"))
        cells = make("div", cls="memory-cells of-" + str(count))
        found = []
        for _ in range(count):
            cell = make("span", cls="memory-cell")
            cells.appendChild(cell)
            found.append(cell)
        rows.appendChild(cells)
        return found

    addresses, octets = line("address", 4 * COUNT), line("byte", 4 * COUNT)
    floats, integers, old = line("as floats", COUNT), line("as integers", COUNT), line("an old view", COUNT)
    for at, cell in enumerate(addresses):
        cell.textContent = str(at)
        cell.className = "memory-cell address"
    say = draw.said(place)

    def show(words=None):
        for at, cell in enumerate(octets):
            cell.textContent = "%02x" % memory[at]
            cell.className = "memory-cell lit" if at // 4 == now["at"] else "memory-cell"
        for at in range(COUNT):
            here = bytes(memory[4 * at : 4 * at + 4])
            state = "memory-cell lit" if at == now["at"] else "memory-cell"
            floats[at].textContent = draw.plain(struct.unpack("<f", here)[0])
            integers[at].textContent = str(struct.unpack("<i", here)[0])
            old[at].textContent = "empty" if now["stale"] else floats[at].textContent
            floats[at].className = integers[at].className = state
            old[at].className = "memory-cell gone" if now["stale"] else state
        say(words or "Element " + str(now["at"]) + " begins at address " + str(4 * now["at"]) + ". All three rows show the same four bytes; nothing is copied.")

    def write(words=None):
        struct.pack_into("<f", memory, 4 * now["at"], now["value"])
        show(words)

    def element(value):
        now["at"] = int(value)
        show()

    def number(value):
        now["value"] = value
        if now["stale"]:
            write("The new views show the number at once; the old one has no bytes any more.")
        else:
            write()

    def grow(event=None):
        now["stale"] = not now["stale"]
        grown.textContent = "Look anew" if now["stale"] else "Grow the memory"
        if now["stale"]:
            show("The memory is larger now, and the browser may have moved it. The view that was made before is empty; the bytes are all still there.")
        else:
            show("A new view, made from the same address: it sees everything again.")

    row = make("div", cls="row")
    grown = button("Grow the memory", grow)
    row.appendChild(grown)
    place.appendChild(row)
    draw.knob(place, "Element", 0, COUNT - 1, 1, now["at"], element, lambda value: str(int(value)))
    draw.knob(place, "Write", -4, 4, 0.25, now["value"], number)
    write()
