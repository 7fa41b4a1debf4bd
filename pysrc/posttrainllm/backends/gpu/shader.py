"""shaders/*.wgsl as templates: one file an op, one section a kernel, plain WGSL after four directives.

    //! kernel NAME            a section: what follows, up to the next one, is the module of that kernel
    //! include STEM A=x       another file's text here, with {A} written as x
    //! if NAME … //! else … //! end          lines kept when the constant NAME is true (`!NAME`: false)
    //! unroll i COUNT … //! end              the lines COUNT times, {i} written as 0, 1, …

Constants are WGSL's own (`const TILE = 64u;`): a caller may give other values, and directives and {…} may use them. Drivers
differ in what they unroll and keep in registers; text is unrolled for all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DIRECTIVE = re.compile(r"^\s*//! (kernel|include|if|else|end|unroll)\b ?(.*)$")
CONSTANT = re.compile(r"^\s*const (\w+)(?:: \w+)? = ([^;]+);")
BINDING = re.compile(r"@group\(0\) @binding\((\d+)\) var<([\w, ]+)> (\w+): ([^;]+);")
FIELDS = re.compile(r"struct Sizes \{([^}]*)\}")
BRACES = re.compile(r"\{([^{}\s;]+)\}")
OTHER, FIRST_SCRATCH, UNIFORM = 4, 8, 15
"""Indices of bindings after a kernel's own arguments: what is fused to a product, scratch, and the sizes."""
ENABLES = {  # a constant given as true, and what the module must ask for
    "HALF": "enable f16;",
    "SUBGROUPS": "enable subgroups;",
    "TENSOR": "enable chromium_experimental_subgroup_matrix;",
}
NAGA_KNOWS = ("enable f16;",)  # the others it takes without asking, or not at all


def folder() -> Path:
    """Where the .wgsl files lie: inside the package where it was installed, at the top of a clone."""
    package = Path(__file__).resolve().parents[2]
    for place in (package / "shaders", package.parents[1] / "shaders"):
        if place.is_dir():
            return place
    raise FileNotFoundError("shaders/ is neither inside the package nor at the top of the clone")


@cache
def text_of(stem: str) -> str:
    """The text of shaders/<stem>.wgsl."""
    return (folder() / f"{stem}.wgsl").read_text(encoding="utf-8")


@cache
def sections(stem: str) -> dict[str, str]:
    """Kernel name to the lines of its section."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text_of(stem).splitlines():
        match = DIRECTIVE.match(line)
        if match and match[1] == "kernel":
            current = found.setdefault(match[2].strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


@dataclass(frozen=True)
class Argument:
    """A storage binding of a section: index, name, whether the shader may write it, WGSL type."""

    index: int
    name: str
    writes: bool
    type: str


def arguments(text: str) -> list[Argument]:
    """The storage bindings of a section's text, in order of index."""
    found = [
        Argument(int(index), name, "write" in access, kind)
        for index, access, name, kind in BINDING.findall(text)
        if access.startswith("storage")
    ]
    return sorted(found, key=lambda a: a.index)


def fields(text: str) -> list[tuple[str, str]]:
    """(name, type) of struct Sizes, in order: what the uniform buffer of a dispatch holds."""
    match = FIELDS.search(text)
    return re.findall(r"(\w+): (\w+)", match[1]) if match else []


def number(text: str, known: dict):
    """The value of a constant's expression: integers, booleans, arithmetic on constants named before."""
    plain = re.sub(r"\b(\d[\d.]*)[uif]\b", r"\1", text).replace("true", "True").replace("false", "False")
    plain = re.sub(r"!(?!=)", " not ", plain.replace("&&", " and ").replace("||", " or ")).replace("/", "//")
    return eval(plain.strip(), {"__builtins__": {}}, known)  # the text comes from our own shaders, never from a user


def _literal(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value}u" if isinstance(value, int) else f"{value!r}f"


class Expansion:
    """One pass over the lines of a section."""

    def __init__(self, given: dict) -> None:
        self.given, self.known = given, {"xyzw": "xyzw"}

    def run(self, lines: list[str]) -> list[str]:
        """Lines with directives carried out."""
        out: list[str] = []
        at = 0
        while at < len(lines):
            match = DIRECTIVE.match(lines[at])
            if not match:
                out.append(self._line(lines[at]))
                at += 1
                continue
            verb, rest = match[1], match[2].strip()
            if verb == "include":
                stem, *pairs = rest.split()
                self.known |= dict(pair.split("=", 1) for pair in pairs)
                out += self.run(text_of(stem).splitlines())
                at += 1
                continue
            body, other, at = _block(lines, at)
            if verb == "if":
                out += self.run(body if number(rest, self.known) else other)
            else:
                name, count = rest.split(" ", 1)
                for turn in range(number(count, self.known)):
                    self.known[name] = turn
                    out += self.run(body)
        return out

    def _line(self, line: str) -> str:
        match = CONSTANT.match(line)
        if match:
            name = match[1]
            if name in self.given:
                self.known[name] = self.given[name]
                return f"const {name} = {_literal(self.given[name])};"
            try:
                self.known[name] = number(match[2], self.known)
            except (NameError, SyntaxError, TypeError):
                pass  # a float or a vector: no directive needs it
        return BRACES.sub(self._value, line)

    def _value(self, match: re.Match) -> str:
        try:
            return str(eval(match[1].replace("/", "//"), {"__builtins__": {}}, self.known))
        except (NameError, SyntaxError):
            return match[0]


def _block(lines: list[str], start: int) -> tuple[list[str], list[str], int]:
    """(lines of the block, lines after its else, index after its end) of the directive at `start`."""
    depth, parts = 0, [[], []]
    part = 0
    for at in range(start + 1, len(lines)):
        match = DIRECTIVE.match(lines[at])
        verb = match[1] if match else ""
        if verb == "end" and depth == 0:
            return parts[0], parts[1], at + 1
        if verb == "else" and depth == 0:
            part = 1
            continue
        depth += (verb in ("if", "unroll")) - (verb == "end")
        parts[part].append(lines[at])
    raise ValueError(f"no //! end for: {lines[start]}")


@cache
def module(stem: str, kernel: str, constants: tuple[tuple[str, object], ...], writable: frozenset[int]) -> str:
    """The WGSL of a kernel with constants set; bindings in `writable` are declared read_write.

    WebGPU counts access by whole buffer, so an input that shares its buffer with an output must be declared read_write.
    """
    lines = Expansion(dict(constants)).run(sections(stem)[kernel].splitlines())

    def access(match: re.Match) -> str:
        writes = int(match[1]) in writable
        return match[0].replace("var<storage, read>", "var<storage, read_write>") if writes else match[0]

    enables = [text for name, text in ENABLES.items() if (name, True) in constants]
    return "\n".join([*enables, *(BINDING.sub(access, line) for line in lines if line.strip())]) + "\n"


def for_naga(text: str) -> str:
    """A module as naga takes it: it refuses `enable subgroups;` and has subgroups all the same."""
    return re.sub(
        r"^enable .*$\n", lambda match: match[0] if match[0].strip() in NAGA_KNOWS else "", text, flags=re.MULTILINE
    )
