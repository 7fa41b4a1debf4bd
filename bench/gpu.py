"""./build.sh bench gpu [--only PART…]: the GPU engine measured on this machine's GPU; prints a table and writes one JSON.

Parts: steps and steps-f16 (training steps, natively), matmul and matmul-f16 (4096³ by tile), kernels (time of each kernel of a
step), shapes (a step's linears by tile and chunks), attention, cooperative (wgpu's matrix units); with --dawn tensor (matrix units
and plain kernels through Dawn), attention-dawn and, with --pyodide too, page and page-f16 (steps as a tab runs them). The JSON is
written again after every part, so that a run cut short leaves what it has.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from posttrainllm.backends.webgpu import WebGPUMachine
from posttrainllm.errors import DeviceError

from bench import gpu_attention, gpu_cooperative, gpu_dawn, gpu_matmul, gpu_report, gpu_tensor
from bench.gpu_steps import Steps, config_of

OUT = Path(__file__).parent / ".out" / "gpu.json"
PRESETS = ["small", "medium", "large", "xl", "huge", "massive", "mega", "gpt2-bytes", "behemoth", "behemoth-b8"]
PAGE_PRESETS = ["medium", "huge", "mega", "gpt2-bytes"]
NATIVE = ("steps", "matmul", "steps-f16", "matmul-f16", "kernels", "attention", "cooperative", "shapes")
DAWN = ("tensor", "page", "page-f16", "attention-dawn")
USUAL = ("steps", "matmul", "steps-f16", "matmul-f16", *DAWN[:3])


class Run:
    """One run's options and record."""

    def __init__(self, options) -> None:
        self.options, self.began = options, time.perf_counter()
        self.record = {
            "command": "./build.sh bench gpu", "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "parts": {}, "seconds": {},
        }  # fmt: skip

    @property
    def left(self) -> float:
        """Seconds that are left of the budget."""
        return self.options.seconds - (time.perf_counter() - self.began)

    def machine(self, precision: str) -> WebGPUMachine:
        """A fresh one, at WebGPU's default limits where asked for."""
        machine = WebGPUMachine(precision=precision)
        if self.options.default_limits:
            from posttrainllm.backends.gpu.limits import DEFAULT

            real = machine.limits
            machine.close()
            limits = replace(DEFAULT, buffer_bytes=real.buffer_bytes, binding_bytes=real.binding_bytes)
            machine = WebGPUMachine(limits=limits, precision=precision)
        self.record |= {"adapter": machine.description, "software": machine.software, "limits": asdict(machine.limits)}
        self.record["features"] = sorted({*self.record.get("features", ()), *machine.features})
        return machine

    def keep(self, part: str, rows) -> None:
        """Print and write what a part has so far."""
        self.record["parts"][part] = rows
        if isinstance(rows, list) and rows:
            print(part, json.dumps(rows[-1], default=str)[:900], flush=True)
        self.record["targets"] = gpu_report.targets(self.record["parts"])
        self.options.out.parent.mkdir(parents=True, exist_ok=True)
        self.options.out.write_text(json.dumps(self.record, indent=1, default=str), encoding="utf-8")

    def presets(self, part: str, each) -> None:
        """each(name) for every preset, while time is left."""
        rows = []
        for name in self.options.presets or (PAGE_PRESETS if part.startswith("page") else PRESETS):
            if self.left < 5:
                rows.append({"preset": name, "error": "no time was left"})
            else:
                try:
                    rows.append(each(name))
                except DeviceError as error:
                    rows.append({"preset": name, "error": str(error)[:300]})
            self.keep(part, rows)

    def run(self, part: str) -> None:
        """Measure one part."""
        options, precision = self.options, "f16" if part.endswith("-f16") else "f32"
        if part.startswith("page"):
            self.presets(
                part,
                lambda name: gpu_dawn.measure(
                    options.dawn, options.pyodide, name, precision, options.node, max(5.0, self.left)
                ),
            )
        elif part == "tensor":
            self.keep(
                part, gpu_tensor.run(options.dawn, options.node, options.size, seconds=max(5.0, min(60.0, self.left)))
            )
        elif part == "attention-dawn":
            self.keep(
                part,
                gpu_attention.through_dawn(
                    options.dawn, options.node, options.presets, seconds=max(5.0, min(60.0, self.left))
                ),
            )
        elif part == "cooperative":
            self.keep(part, gpu_cooperative.run(options.size))
        else:
            self.native(part, precision)

    def native(self, part: str, precision: str) -> None:
        """A part that this process measures. A machine of its own a preset: what one leaves behind is not the next one's."""
        options = self.options

        def with_machine(body):
            machine = self.machine(precision)
            try:
                return body(machine)
            finally:
                machine.close()

        if part.startswith("steps"):
            self.presets(part, lambda name: with_machine(lambda m: Steps(m, name, not options.unprobed).measure()))
        elif part.startswith("kernels"):
            self.presets(
                part,
                lambda name: {
                    "preset": name,
                    "kernels": with_machine(lambda m: Steps(m, name, not options.unprobed).kernels()),
                },
            )
        elif part.startswith("attention"):

            def sweep(machine, name):
                c = config_of(name)
                sizes = {"B": c.batch, "T": c.context, "H": c.heads, "D": c.head_width}
                return {"preset": name, "tiles": gpu_attention.sweep(machine, sizes, name)}

            self.presets(part, lambda name: with_machine(lambda m: sweep(m, name)))
        elif part.startswith("matmul"):
            self.keep(part, with_machine(lambda m: gpu_matmul.rates(m, options.size)))
        else:
            self.keep(part, with_machine(lambda m: gpu_matmul.shapes(m, options.presets or list(gpu_matmul.SHAPES))))


def main(arguments: list[str]) -> int:
    """Measure what is asked for. 0 when it ran: figures are recorded, not judged."""
    parser = argparse.ArgumentParser(
        prog="./build.sh bench gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=[*NATIVE, "kernels-f16", "attention-f16", "shapes-f16", *DAWN], metavar="PART"
    )
    parser.add_argument("--presets", nargs="+", metavar="NAME", help=f"of {', '.join(PRESETS)}; NAME+lora trains an adapter on it")
    parser.add_argument("--size", type=int, default=4096, help="of the matmuls")
    parser.add_argument("--dawn", help="dawn.node of npm's webgpu")
    parser.add_argument("--pyodide", help="Pyodide's folder")
    parser.add_argument("--node", default="node")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin nothing new after so long")
    parser.add_argument("--default-limits", action="store_true", help="natively at WebGPU's default limits")
    parser.add_argument("--unprobed", action="store_true", help="steps with the tiles of tiles.py's rules")
    parser.add_argument("--out", type=Path, default=OUT, help="where the JSON goes")
    options = parser.parse_args(arguments)
    run = Run(options)
    os.environ["POSTTRAINLLM_CACHE"] = tempfile.mkdtemp()  # what a run before found is not this one's
    for part in options.only or USUAL:
        if part in DAWN and not (options.dawn and (options.pyodide or not part.startswith("page"))):
            continue
        began = time.perf_counter()
        if run.left < 5:
            run.keep(part, {"error": "no time was left"})
            continue
        try:
            run.run(part)
        except Exception as error:  # noqa: BLE001 - the parts after it are still worth their figures
            run.record["parts"].setdefault(part, {"error": f"{type(error).__name__}: {error}"[:600]})
            print(part, f"{type(error).__name__}: {error}"[:600], flush=True)
        run.record["seconds"][part] = round(time.perf_counter() - began, 1)
    run.keep("end", {"seconds": round(time.perf_counter() - run.began, 1)})
    print(gpu_report.table(run.record))
    return 0


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
