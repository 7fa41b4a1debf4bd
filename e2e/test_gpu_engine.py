"""WebGPU in the tab, with the real trainer, on Chromium's software GPU (SwiftShader): right numbers, switching, faults, nothing leaked.

SwiftShader takes seconds to compile and a third of a second a step, so all models are tiny, have the sizes of the self-test (whose
pipelines are then there already), and the tests of this file share two workers.
"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser

from e2e.conftest import profile, rewritten
from e2e.driver import Driver
from posttrainllm.model.webgpu_check import CONFIG as TESTED

CONFIG = {"layers": 1, "channels": TESTED.channels, "heads": TESTED.heads, "context": TESTED.context, "batch": TESTED.batch}
STEPS = 12
TOLERANCE = 1e-4  # float32 sums in another order, twelve steps long
SETTINGS = {"evaluate_every_steps": 1000, "evaluation_tokens": 64, "warmup_steps": 1, "learning_rate": 0.02}
# What gpu.mjs is served with. KEPT: a test in the worker finds the Engine as `gpuEngine`.
KEPT = {"this.device = device;": "globalThis.gpuEngine = this; this.device = device;"}
# A kernel does nothing, so weights' gradients stay zero. No subgroups: a device that fails its test is tried once more without them.
ZEROS = {
    "code: source": r"code: source.replace(/(fn linear_backward_weight\([^{]*\{)/, '$1 if (true) { return; }')",
    '"subgroups", ': "",
}
CYCLES = 50
SETTLED = 5  # cycles after which all that is kept on purpose is there
SLACK_BYTES = 1 << 20  # of JavaScript's heap, after a collection
# Counts the GPU's buffers that were made and not destroyed.
COUNTED = """() => {
  globalThis.alive = new Set();
  const make = GPUDevice.prototype.createBuffer, destroy = GPUBuffer.prototype.destroy;
  GPUDevice.prototype.createBuffer = function (...given) { const made = make.apply(this, given); alive.add(made); return made; };
  GPUBuffer.prototype.destroy = function () { alive.delete(this); return destroy.call(this); };
}"""
HELD = """() => ({
  buffers: gpuEngine.buffers.size, uniforms: gpuEngine.uniforms.size, staging: gpuEngine.idleStaging.length, fetched: gpuEngine.fetched.size,
  pipelines: gpuEngine.pipelines.size, alive: alive.size,
  wasm: python._module.HEAPU8.length, objects: python.runPython('import gc; gc.collect(); len(gc.get_objects())'),
})"""
HELD_BYTES = "() => [...gpuEngine.buffers.values(), ...gpuEngine.uniforms, ...gpuEngine.idleStaging].reduce((sum, { size }) => sum + size, 0)"


@pytest.fixture(scope="module")
def open_worker(browser: Browser, site):
    """Makes drivers whose worker gets gpu.mjs with these changes, and keeps Pyodide as `python`."""
    made = []

    def open_(changes: dict[str, str]) -> Driver:
        context = profile(browser)
        made.append(context)
        context.route("**/gpu.mjs", rewritten(changes))
        registering = "pyodide.registerJsModule('posttrainllm_gpu', gpu);"
        context.route("**/worker.mjs", rewritten({registering: f"globalThis.python = pyodide; {registering}"}))
        driver = Driver(context.new_page(), site.url)
        ready = driver.wait("ready")
        assert ready["engines"][0]["name"] == "cpu", "a software GPU is not chosen by itself"
        assert "is a CPU that plays a GPU" in ready["engines"][1]["why"]
        driver.ask("settings", sample_every_seconds=0)
        driver.call("corpus.bundled", "corpus")
        return driver

    yield open_
    for context in made:
        context.close()


@pytest.fixture(scope="module")
def driver(open_worker) -> Driver:
    """A worker for all tests that need no other: each of them leaves it without a run in progress."""
    return open_worker(KEPT)


def inside(driver: Driver, script: str):
    """The value of a script in the worker."""
    return next(each for each in driver.page.workers if each.url.endswith("/worker.mjs")).evaluate(script)


class WorkerHeap:
    """The worker's JavaScript heap, through the devtools' protocol: Playwright itself reaches only the page's."""

    def __init__(self, page) -> None:
        self._page, self._number, self._answers, self._session = page, 0, {}, ""
        self._devtools = page.context.new_cdp_session(page)
        self._devtools.on("Target.attachedToTarget", self._attached)
        self._devtools.on("Target.receivedMessageFromTarget", self._received)
        self._devtools.send("Target.setAutoAttach", {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": False})

    def _attached(self, event: dict) -> None:
        if event["targetInfo"]["url"].endswith("/worker.mjs"):
            self._session = event["sessionId"]

    def _received(self, event: dict) -> None:
        answer = json.loads(event["message"])
        self._answers[answer.get("id")] = answer

    def _ask(self, method: str) -> dict:
        self._number += 1
        message = json.dumps({"id": self._number, "method": method})
        self._devtools.send("Target.sendMessageToTarget", {"sessionId": self._session, "message": message})
        while self._number not in self._answers:
            self._page.wait_for_timeout(20)
        return self._answers.pop(self._number)["result"]

    def bytes(self) -> int:
        """Bytes in use after garbage was collected."""
        self._ask("HeapProfiler.collectGarbage")
        return self._ask("Runtime.getHeapUsage")["usedSize"]


def use(driver: Driver, name: str) -> dict:
    return driver.call("engine.use", "engine", name=name)


def asked_together(driver: Driver, *requests: dict) -> None:
    """Requests that the worker gets at once, so that nothing happens between them."""
    driver.page.evaluate("(requests) => { for (const request of requests) worker.postMessage(request); }", list(requests))


def start(driver: Driver, steps: int, **settings) -> str:
    """Begin a run; its id."""
    driver.ask("train.start", config=CONFIG, training=SETTINGS | {"steps": steps, "decay_steps": steps} | settings)
    return driver.wait("started")["run_id"]


def step_after(driver: Driver, step: int) -> int:
    while (event := driver.wait("step"))["step"] <= step:
        pass
    return event["step"]


def losses(driver: Driver, run_id: str) -> dict[int, float]:
    """Losses by step, as the saved run has them."""
    return {row["step"]: row["loss_nats"] for row in driver.checkpoint(run_id).history}


def trained(driver: Driver, steps: int) -> dict[int, float]:
    """The losses of a run from its first step to its last."""
    run_id = start(driver, steps)
    stopped = driver.wait("stopped")
    assert (stopped["reason"], stopped["step"]) == ("finished", steps), stopped
    return losses(driver, run_id)


@pytest.fixture(scope="module")
def on_cpu(driver) -> dict[int, float]:
    """What the CPU engine gives for the run that the others are compared with."""
    use(driver, "cpu")
    return trained(driver, STEPS)


def test_it_learns_as_the_cpu_engine_does(driver, on_cpu):
    assert use(driver, "webgpu")["engine"]["precision"] == "f32"
    on_gpu = trained(driver, STEPS)
    assert list(on_gpu) == list(range(1, STEPS + 1))
    assert on_gpu[STEPS] < on_gpu[1] - 0.5
    assert on_gpu == pytest.approx(on_cpu, rel=TOLERANCE)


def test_what_is_held_was_foreseen(driver):
    """By the sizes of all buffers that there are: `tiny`, one step. (test_memory_held.py asks the same of the CPU engine.)"""
    if inside(driver, "() => !globalThis.gpuEngine?.buffers.size"):  # it takes half a minute to test a device
        use(driver, "webgpu")
    foreseen = driver.call("plan", "planned", preset="tiny")["memory"]["total_bytes"]
    driver.ask("train.start", preset="tiny", training=SETTINGS | {"steps": 1, "evaluation_tokens": 1, "warmup_steps": 0})
    driver.wait("stopped")
    assert foreseen == pytest.approx(inside(driver, HELD_BYTES), rel=0.05)


def test_switching_from_cpu_to_gpu_and_back_in_mid_run(driver, on_cpu):
    use(driver, "cpu")
    run_id = start(driver, 4, decay_steps=STEPS)
    assert driver.wait("stopped")["step"] == 4
    # The CPU engine would be done before a request comes: so the run goes on paused, and on the GPU it steps slowly enough.
    asked_together(driver, {"kind": "train.extend", "id": 901, "steps": STEPS - 4}, {"kind": "train.pause", "id": 902})
    paused = driver.wait("paused")["step"]
    assert 4 <= paused < STEPS
    moved = use(driver, "webgpu")
    assert (moved["engine"]["name"], moved["step"]) == ("webgpu", paused) and moved["memory"]["total_bytes"] > 0
    first = inside(driver, "() => { globalThis.firstEngine = gpuEngine; return gpuEngine.buffers.size; }")
    moved = use(driver, "webgpu")  # as from one precision to another: on a device of its own, for the first still holds the model
    assert (moved["engine"]["name"], moved["step"]) == ("webgpu", paused) and first > 0
    assert inside(driver, "() => firstEngine !== gpuEngine && firstEngine.buffers.size === 0 && gpuEngine.buffers.size > 0")
    driver.ask("train.resume")
    step = step_after(driver, paused)
    moved = use(driver, "cpu")
    assert moved["engine"]["name"] == "cpu" and step <= moved["step"] < STEPS
    assert driver.wait("stopped")["step"] == STEPS
    assert losses(driver, run_id) == pytest.approx(on_cpu, rel=TOLERANCE), "every step once, none anew"


TUNED_TEXT = "Sing, o muse, of ships and salt and stars. " * 60
TUNE = {"steps": 4, "learning_rate": 0.02, "warmup_steps": 0, "evaluate_every_steps": 1000, "evaluation_tokens": 64}


def tuned(driver: Driver, engine: str) -> tuple[list[list], dict, str]:
    """A run of four steps with an adapter tuned on it: the tune's rows, what it ended with, and what the model writes then."""
    use(driver, engine)
    trained(driver, 4)
    driver.ask("tune.start", how="text", text=TUNED_TEXT, name="sea", adapter={"rank": 4}, training=TUNE)
    rows = []
    while (event := driver.wait("tune.step", "tune.stopped"))["kind"] == "tune.step":
        rows += event["rows"]
    assert (event["reason"], event["step"], event["saved"]) == ("finished", TUNE["steps"], True), event
    return rows, event, greedy(driver)


def greedy(driver: Driver) -> str:
    """What the live model writes."""
    driver.ask("write.start", prompt="o", tokens=8, temperature=0)
    text = ""
    while (token := driver.wait("token", "wrote"))["kind"] == "token":
        text += token["text"]
    return text


def test_an_adapter_is_tuned_as_on_the_cpu_engine(driver):
    expected, other, text = tuned(driver, "cpu")
    rows, stopped, written = tuned(driver, "webgpu")
    assert [row[0] for row in rows] == list(range(1, TUNE["steps"] + 1))
    assert [row[1] for row in rows] == pytest.approx([row[1] for row in expected], rel=TOLERANCE)
    assert [row[2] for row in rows] == pytest.approx([row[2] for row in expected], rel=1e-2)
    for when in ("before_nats", "after_nats"):
        assert stopped["forgetting"][when] == pytest.approx(other["forgetting"][when], rel=TOLERANCE)
    assert written == text
    held = json.loads(inside(driver, "() => JSON.stringify([1, 2, 3].map((region) => gpuEngine.buffers.get(region).size))"))
    assert max(held) < 32768, "a base that stands still has no gradients and moments"
    listed = driver.call("adapters.list", "adapters")
    sea = listed["adapters"][0]["adapter_id"]
    assert listed["chosen"] == sea
    assert driver.call("adapters.use", "adapters", adapter_id="")["chosen"] is None
    assert driver.call("adapters.use", "adapters", adapter_id=sea)["chosen"] == sea
    moved = use(driver, "cpu")
    assert moved["engine"]["name"] == "cpu" and greedy(driver) == written


def test_fifty_models_leave_nothing_behind(driver):
    use(driver, "webgpu")
    driver.ask("settings", sample_every_seconds=0, save_every_seconds=3600)
    inside(driver, COUNTED)
    during, after = [], []
    heap = WorkerHeap(driver.page)
    for cycle in range(CYCLES):
        run_id = start(driver, 1, evaluation_tokens=1, warmup_steps=0)
        driver.wait("stopped")
        driver.ask("write.start", prompt="a", tokens=1)
        driver.wait("wrote")
        during.append(inside(driver, HELD))
        driver.call("runs.delete", "runs", run_id=run_id)
        after.append(inside(driver, HELD) | {"heap": heap.bytes() if cycle in (SETTLED, CYCLES - 1) else 0})
    assert {name: after[-1][name] for name in ("buffers", "uniforms", "staging", "fetched", "alive")} == dict.fromkeys(
        ("buffers", "uniforms", "staging", "fetched", "alive"), 0)
    for name in ("buffers", "uniforms", "staging", "pipelines", "alive", "wasm"):
        assert during[-1][name] == during[SETTLED][name], (name, during)
    assert after[-1]["heap"] - after[SETTLED]["heap"] < SLACK_BYTES, (after[-1], after[SETTLED])
    assert after[-1]["objects"] - after[SETTLED]["objects"] < CYCLES, [each["objects"] for each in after]


def test_a_wrong_command_sends_the_run_to_the_cpu(driver):
    use(driver, "webgpu")
    run_id = start(driver, STEPS)
    step_after(driver, 0)
    driver.ask("train.save")
    saved = driver.wait("saved")["step"]
    inside(driver, "gpuEngine.device.createBuffer({ size: 16, usage: 0 }), 0")
    recovered = driver.wait("recovered")
    assert (recovered["step"], recovered["engine"]["name"]) == (saved, "cpu")
    assert driver.wait("stopped")["step"] == STEPS
    assert list(losses(driver, run_id)) == list(range(1, STEPS + 1))


def test_a_lost_device_is_replaced_once(driver, on_cpu):
    use(driver, "webgpu")
    run_id = start(driver, STEPS)
    step_after(driver, 0)
    driver.ask("train.save")
    saved = driver.wait("saved")["step"]
    inside(driver, "gpuEngine.device.destroy()")
    recovered = driver.wait("recovered")
    assert recovered["step"] == saved and recovered["lost_steps"] >= 0
    assert driver.wait("engine")["engine"]["name"] == "webgpu"
    assert saved < step_after(driver, saved) < STEPS
    inside(driver, "gpuEngine.device.destroy()")
    assert driver.wait("recovered")["step"] == saved
    assert driver.wait("engine")["engine"]["name"] == "cpu"
    assert driver.wait("stopped")["step"] == STEPS
    assert losses(driver, run_id) == pytest.approx(on_cpu, rel=TOLERANCE)


def test_a_gpu_that_computes_wrongly_is_refused(open_worker):
    driver = open_worker(ZEROS)
    failed = driver.call("engine.use", "failed", "engine", name="webgpu")
    assert failed["kind"] == "failed" and "gradient of blocks.1.mlp.proj" in failed["message"] and "only zeros" in failed["message"], failed
    assert trained(driver, 2)
    assert driver.page.evaluate("events.filter((event) => event.kind === 'started').at(-1).engine.name") == "cpu"
