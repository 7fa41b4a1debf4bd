"""Draws the site's icons, one picture in four files: `python3 -m tools.icons`. They are committed; run it after a change here.

The picture is a falling loss curve. The same few formulas give the SVG and, with a signed distance a pixel, the PNGs.
"""

from __future__ import annotations

import math
import struct
import zlib

from tools import paths

TARGET = paths.REPO / "static" / "icons"
GROUND, LINE, DOT = (31, 95, 91), (240, 247, 244), (240, 163, 94)
LEFT, RIGHT, TOP, DROP, RATE = 0.23, 0.74, 0.25, 0.46, 4.0  # in parts of the side
WIDTH, DOT_RADIUS, CORNER = 0.072, 0.082, 0.22


def curve(x: float) -> tuple[float, float]:
    """Height and slope of the loss at x: a decay, as losses do; y grows downwards."""
    fall = math.exp(-RATE * (x - LEFT) / (RIGHT - LEFT))
    return TOP + DROP * (1 - fall), DROP * RATE / (RIGHT - LEFT) * fall


def mix(below: tuple[float, ...], above: tuple[float, ...], share: float) -> tuple[float, ...]:
    return tuple(b + (a - b) * share for b, a in zip(below, above, strict=True))


def pixel(x: float, y: float, side: int, scale: float, corner: float) -> bytes:
    """RGBA at a point of the unit square; `scale` shrinks the drawing, `corner` is the ground's radius."""

    def inside(distance: float) -> float:  # coverage from a signed distance, one pixel soft
        return min(1.0, max(0.0, 0.5 - distance * side))

    qx, qy = abs(x - 0.5) - 0.5 + corner, abs(y - 0.5) - 0.5 + corner
    alpha = inside(math.hypot(max(qx, 0), max(qy, 0)) + min(max(qx, qy), 0) - corner) if corner else 1.0
    u, v = (x - 0.5) / scale + 0.5, (y - 0.5) / scale + 0.5
    at = min(max(u, LEFT), RIGHT)
    height, slope = curve(at)
    beyond = abs(u - at)
    distance = math.hypot(v - height, beyond) if beyond else abs(v - height) / math.hypot(1, slope)
    colour = mix(GROUND, LINE, inside((distance - WIDTH / 2) * scale))
    dot = math.hypot(u - RIGHT, v - curve(RIGHT)[0]) - DOT_RADIUS
    colour = mix(colour, GROUND, inside((dot - 0.035) * scale))
    colour = mix(colour, DOT, inside(dot * scale))
    return bytes(round(part) for part in (*colour, alpha * 255))


def png(side: int, scale: float = 1.0, corner: float = CORNER) -> bytes:
    """A PNG of side x side pixels, RGBA."""
    rows = (
        b"\0" + b"".join(pixel((i + 0.5) / side, (j + 0.5) / side, side, scale, corner) for i in range(side))
        for j in range(side)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
    body = zlib.compress(b"".join(rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def svg() -> str:
    def colour(rgb: tuple[int, int, int]) -> str:
        return "#{:02x}{:02x}{:02x}".format(*rgb)

    xs = [LEFT + (RIGHT - LEFT) * i / 24 for i in range(25)]
    points = " ".join(f"{x * 512:.1f},{curve(x)[0] * 512:.1f}" for x in xs)
    end = f'cx="{RIGHT * 512:.1f}" cy="{curve(RIGHT)[0] * 512:.1f}"'
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 512 512">\n'
        f'  <rect width="512" height="512" rx="{CORNER * 512:.0f}" fill="{colour(GROUND)}"/>\n'
        f'  <polyline points="{points}" fill="none" stroke="{colour(LINE)}" stroke-width="{WIDTH * 512:.1f}" stroke-linecap="round" stroke-linejoin="round"/>\n'
        f'  <circle {end} r="{DOT_RADIUS * 512:.1f}" fill="{colour(DOT)}" stroke="{colour(GROUND)}" stroke-width="18"/>\n'
        "</svg>\n"
    )


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / "icon.svg").write_text(svg())
    (TARGET / "icon-192.png").write_bytes(png(192))
    (TARGET / "icon-512.png").write_bytes(png(512))
    (TARGET / "icon-maskable-512.png").write_bytes(png(512, scale=0.8, corner=0.0))


if __name__ == "__main__":
    main()
