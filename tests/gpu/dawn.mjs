// node dawn.mjs DAWN_NODE PYODIDE_FOLDER REPO < question.json: Pyodide in Node, WebGPU from Dawn, the package from the clone.
import { readFileSync, readdirSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";

// Node shows the line of an error; Pyodide's are a megabyte each.
function fail(error) {
  const stack = String(error?.stack ?? "").split("\n").slice(0, 10).map((line) => line.slice(0, 200));
  process.stderr.write([...stack, String(error?.message ?? error).slice(-2000)].join("\n") + "\n", () => process.exit(1));
}
process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);

const [dawnPath, pyodideFolder, repo] = process.argv.slice(2);
const dawn = createRequire(import.meta.url)(dawnPath);
const { loadPyodide } = await import(pathToFileURL(join(pyodideFolder, "pyodide.mjs")));
const pyodide = await loadPyodide({ indexURL: pyodideFolder + "/" }); // before navigator exists, or it takes Node for a browser
await pyodide.loadPackage("numpy", { messageCallback: () => {} });
Object.assign(globalThis, dawn.globals);
const flags = (process.env.PTL_DAWN_FLAGS ?? "backend=vulkan").split(";");
const gpu = dawn.create(flags);
Object.defineProperty(globalThis, "navigator", { value: { gpu }, configurable: true });

function copy(from, to) {
  for (const name of readdirSync(from)) {
    const path = join(from, name);
    if (name === "__pycache__") continue;
    if (statSync(path).isDirectory()) copy(path, join(to, name));
    else if (/\.(py|json|wgsl)$/.test(name)) {
      pyodide.FS.mkdirTree(to);
      pyodide.FS.writeFile(join(to, name), readFileSync(path));
    }
  }
}
copy(join(repo, "pysrc/posttrainllm"), "/lib/pkg/posttrainllm");
copy(join(repo, "shaders"), "/lib/pkg/posttrainllm/shaders");
pyodide.FS.writeFile("/lib/pkg/in_pyodide.py", readFileSync(join(repo, "tests/gpu/in_pyodide.py")));
pyodide.registerJsModule("posttrainllm_gpu", await import(pathToFileURL(join(repo, "static/gpu.mjs"))));
pyodide.runPython("import sys; sys.path.insert(0, '/lib/pkg')");
const run = pyodide.runPython("from in_pyodide import run; run");
let question = "";
for await (const part of process.stdin) question += part;
process.stdout.write((await run(question)) + "\n", () => process.exit(0)); // exit would cut a pipe after 64 KiB
