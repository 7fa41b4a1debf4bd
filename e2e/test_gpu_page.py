"""What the page shows of a GPU and asks of it, on the fake trainer: the engine panel, switching, compiling, faults."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import error, go_on, heard, let_through, number, phase, sent, stepping
from e2e.test_page_access import CONTRAST, UNLABELLED

CPU = {"name": "cpu", "description": "CPU, WebAssembly SIMD, 2 threads", "precision": "f32", "features": [], "chosen": True, "available": True,
       "why": "The C++ engine, passed its self-test."}
GPU = {"name": "webgpu", "description": "WebGPU, NVIDIA H200", "features": ["shader-f16", "subgroups", "timestamp-query"], "chosen": False,
       "available": True, "why": "Not in use now."}
PLAIN_GPU = GPU | {"description": "WebGPU, an old card", "features": ["subgroups"]}
NO_GPU = {"name": "webgpu", "description": "GPU (WebGPU)", "chosen": False, "available": False, "why": "This browser has no WebGPU."}
MEMORY = {"weights_bytes": 3_369_984, "gradients_bytes": 3_369_984, "moments_bytes": 6_739_968, "activations_bytes": 42_100_000,
          "other_bytes": 260_000, "total_bytes": 55_839_936}
ON_GPU = {"engines": [GPU | {"chosen": True, "precision": "f32", "why": "The GPU, which passed its self-test."}, CPU | {"chosen": False}], "memory": MEMORY,
          "started": {"memory": MEMORY}}
STEP = {"kind": "step", "step": 40, "steps": 200, "loss_nats": 3.0, "tokens_per_second": 1_234_567.0, "flops_per_second": 12.3e12, "rows": []}
LOST = "The GPU had a fault: it went away (lost: the driver was reset). The run goes on from its last save, step 20, on a fresh GPU device."


def post(page: Page, event: dict) -> None:
    """The fake says this."""
    page.evaluate("(event) => tell({ kind: 'test.post', event })", event)


def panel(page: Page) -> None:
    page.click("#engine summary")


def usable(page: Page) -> dict[str, bool]:
    return {name: page.get_attribute(f"#engine-{name}", "aria-disabled") == "false" for name in ("cpu", "gpu", "half")}


def announcements(page: Page) -> None:
    """Keep what a screen reader is told in window.said."""
    page.evaluate("""() => { const box = document.getElementById('announce'); window.said = [];
        new MutationObserver(() => said.push(box.textContent)).observe(box, { childList: true }); }""")


def standing_at(page: Page, step: int) -> None:
    expect(page.locator("#stat-step")).to_contain_text(f"{step} of")


def end_of_chart(page: Page) -> str:
    """The step at which the training curve ends, as the chart's own read-out says it."""
    box = page.locator("#chart .u-over").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] / 2)
    return page.inner_text("#legend-train").rpartition(" ")[2]


def test_the_largest_sizes_come_and_go_with_the_engine(open_page):
    page = open_page(fake=ON_GPU)
    shared = {"kind": "engine", "engine": ON_GPU["engines"][0], "engines": ON_GPU["engines"], "step": None, "memory": None}
    medium = {"layers": 4, "channels": 128, "heads": 4, "context": 128, "batch": 16, "parameters": 842_496}
    largest = {"layers": 12, "channels": 768, "heads": 12, "context": 1024, "batch": 4, "parameters": 86_000_000}
    expect(page.locator("#preset-gpt2")).to_have_count(0)
    post(page, shared | {"presets": {"gpt2": largest, "medium": medium}})
    expect(page.locator("#preset-gpt2")).to_have_count(1)
    page.check("#preset-gpt2", force=True)
    expect(page.locator("#plan-facts")).to_contain_text("86,000,000")
    post(page, shared | {"presets": {"medium": medium}})
    expect(page.locator("#preset-gpt2")).to_have_count(0)
    expect(page.locator("#preset-medium")).to_be_checked()


def test_the_panel_says_what_computes(open_page):
    page = open_page(fake=ON_GPU | {"hold": 10})
    panel(page)
    expect(page.locator("#engine-name")).to_have_text("WebGPU, NVIDIA H200")
    expect(page.locator("#engine-features")).to_have_text("half precision, subgroups, timestamps")
    expect(page.locator("#engine-precision")).to_have_text("full (f32)")
    expect(page.locator("#engine-memory-box")).to_be_hidden()
    assert usable(page) == {"cpu": True, "gpu": False, "half": True}
    page.keyboard.press("Escape")
    page.click("#train-start")
    standing_at(page, 10)
    post(page, STEP)
    standing_at(page, 40)
    panel(page)
    expect(page.locator("#engine-speed")).to_have_text("1,234,567")
    expect(page.locator("#engine-flops")).to_have_text("12.3 TFLOP/s")
    expect(page.locator("#engine-memory dd")).to_have_text(["3.4 MB", "3.4 MB", "6.7 MB", "42.1 MB", "260 kB", "55.8 MB"])
    shares = page.evaluate("[...document.querySelectorAll('#engine-shares span')].map((each) => Number(each.style.flexGrow))")
    assert sum(shares) == pytest.approx(1, abs=1e-3) and max(shares) == pytest.approx(0.754, abs=1e-3)


def test_switching_in_mid_run(open_page):
    page = open_page(fake={"engines": [CPU, GPU], "memory": MEMORY, "hold": 10, "gates": ["engine"]})
    page.click("#train-start")
    standing_at(page, 10)
    announcements(page)
    panel(page)
    page.click("#engine-half")
    expect(page.locator("#engine-half")).to_have_text("Switching…")
    expect(page.locator("#engine-half")).to_be_focused()
    expect(page.locator("#engine-name")).to_have_text("Switching to the GPU in half precision…")
    expect(page.locator("#run-status")).to_have_text("Moving the run to the GPU in half precision…")
    assert usable(page) == {"cpu": False, "gpu": False, "half": False}
    page.click("#engine-cpu", force=True)  # does nothing while that goes on
    post(page, {"kind": "preparing", "done": 40, "total": 100})
    expect(page.locator("#run-status")).to_have_text("Compiling for your GPU: 40 of 100")
    let_through(page, "engine")
    expect(page.locator("#engine-half")).to_have_text("In use")
    expect(page.locator("#engine-name")).to_have_text("WebGPU, NVIDIA H200, half precision")
    expect(page.locator("#engine-precision")).to_contain_text("half (f16)")
    expect(page.locator("#engine-memory dd").last).to_have_text("55.8 MB")
    expect(page.locator("#boot-bar")).to_be_hidden()
    expect(page.locator("#run-status")).to_contain_text("Step 10 of 200")
    assert [(each["name"], each["precision"]) for each in sent(page, "engine.use")] == [("webgpu", "f16")]
    assert page.evaluate("said") == ["Switching to the GPU in half precision…", "Compiling for your GPU.", "Now computing on the GPU in half precision."]
    page.click("#engine-cpu")
    expect(page.locator("#engine-name")).to_have_text("CPU, WebAssembly SIMD, 2 threads")
    expect(page.locator("#engine-features-row")).to_be_hidden()
    go_on(page)
    phase(page, "ended")
    assert usable(page) == {"cpu": False, "gpu": True, "half": True}, "what the GPU can do is remembered"


@pytest.mark.parametrize(("gpu", "notes"), [
    (NO_GPU, ["This browser has no WebGPU.", "This browser has no WebGPU."]),
    (PLAIN_GPU, [None, "This GPU has no half precision."]),
    ({name: value for name, value in GPU.items() if name != "features"}, [None, "Known once the GPU is in use."]),
])
def test_what_cannot_be_chosen_says_why(open_page, gpu, notes):
    page = open_page(fake={"engines": [CPU, gpu]})
    panel(page)
    for name, note in zip(("gpu", "half"), notes, strict=True):
        assert usable(page)[name] == (note is None)
        if note:
            expect(page.locator(f"#engine-{name}-note")).to_have_text(note)
            page.focus(f"#engine-{name}")  # the keyboard reaches it, and hears the note
            assert page.get_attribute(f"#engine-{name}", "aria-describedby") == f"engine-{name}-note"
            page.keyboard.press("Enter")
    assert not sent(page, "engine.use")


def test_switching_that_fails_changes_nothing(open_page):
    refusal = "webgpu: a training step gives the reference's gradient of wte; only zeros came; use the cpu engine."
    page = open_page(fake={"engines": [CPU, GPU], "hold": 10, "fail": {"engine": refusal}, "gates": ["engine"]})
    page.click("#train-start")
    standing_at(page, 10)
    panel(page)
    page.click("#engine-gpu")
    let_through(page, "engine")
    expect(page.locator("#engine-cpu")).to_have_text("In use")
    expect(page.locator("#engine-name")).to_have_text("CPU, WebAssembly SIMD, 2 threads")
    expect(page.locator("#run-status")).to_contain_text("Step 10 of 200")
    assert usable(page) == {"cpu": False, "gpu": True, "half": True}
    error(page, "engine", refusal)
    page.click("#engine-gpu")
    page.keyboard.press("Escape")  # the panel is closed: the page itself says it
    expect(page.locator("#engine-error")).to_be_hidden()
    heard(page, "failed", 2)
    go_on(page)
    phase(page, "ended")


def test_switching_that_fails_behind_a_closed_panel(open_page):
    page = open_page(fake={"engines": [CPU, GPU], "fail": {"engine": "No graphics adapter was found."}, "gates": ["engine"]})
    panel(page)
    page.click("#engine-gpu")
    page.keyboard.press("Escape")
    let_through(page, "engine")
    error(page, "page", "No graphics adapter was found.")


def test_by_keyboard(open_page):
    page = open_page(fake={"engines": [CPU, GPU]})
    page.focus("#engine summary")
    page.keyboard.press("Enter")
    for name in ("cpu", "gpu"):
        page.keyboard.press("Tab")
        expect(page.locator(f"#engine-{name}")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#engine-gpu")).to_have_text("In use")
    page.keyboard.press("Escape")
    expect(page.locator("#engine summary")).to_be_focused()


def test_compiling_before_the_first_step(open_page):
    page = open_page(fake=ON_GPU | {"gates": ["start"], "fail": {"start": "unused"}, "hold": 5})
    page.click("#train-start")
    phase(page, "starting")
    announcements(page)
    for done in (0, 40, 80):
        post(page, {"kind": "preparing", "done": done, "total": 100})
        expect(page.locator("#run-status")).to_have_text(f"Compiling for your GPU: {done} of 100")
    expect(page.locator("#boot-bar")).to_be_visible()
    assert page.evaluate("document.getElementById('boot-bar').value") == 0.8
    assert page.evaluate("said") == ["Compiling for your GPU."], "once, not for each pipeline"
    let_through(page, "start")  # and what was compiled for fails: nothing of it stays
    phase(page, "idle")
    expect(page.locator("#boot-bar")).to_be_hidden()
    expect(page.locator("#run-status")).to_contain_text("Ready: Shakespeare")


def test_a_fault_that_was_survived(open_page):
    page = open_page(fake=ON_GPU | {"hold": 50, "steps": 100})
    page.click("#train-start")
    standing_at(page, 50)
    assert end_of_chart(page) == "50"
    page.evaluate("tell({ kind: 'test.back', step: 20 })")
    post(page, {"kind": "recovered", "message": LOST, "step": 20, "lost_steps": 30, "engine": ON_GPU["engines"][0]})
    post(page, {"kind": "engine", "engine": ON_GPU["engines"][0], "engines": ON_GPU["engines"], "step": 20, "memory": MEMORY})
    standing_at(page, 20)
    expect(page.locator("#run-notice")).to_contain_text(LOST + " 30 steps are trained again.")
    expect(page.locator("#run-notice")).to_have_attribute("role", "status")
    expect(page.locator("#train-error")).to_be_hidden()
    expect(page.locator("#run-status")).to_have_text("Step 20 of 100.")
    assert end_of_chart(page) == "20"
    expect(page.locator("#stat-validation")).to_have_text("4.208")
    assert page.evaluate("document.getElementById('train-progress').value") == 20
    phase(page, "running")
    page.click("#train-pause")
    phase(page, "paused")
    page.click("#train-resume")
    go_on(page, 10)
    standing_at(page, 30)
    assert end_of_chart(page) == "30"
    page.click("#run-notice button")
    expect(page.locator("#run-notice")).to_be_hidden()
    page.click("#train-stop")
    phase(page, "ended")
    expect(page.locator("#run-status")).to_contain_text("Stopped after 30 steps")


def test_a_fault_while_paused(open_page):
    page = open_page(fake=ON_GPU | {"hold": 30})
    page.click("#train-start")
    standing_at(page, 30)
    page.click("#train-pause")
    phase(page, "paused")
    page.evaluate("tell({ kind: 'test.back', step: 20 })")
    post(page, {"kind": "preparing", "done": 50, "total": 100})
    expect(page.locator("#run-status")).to_have_text("Compiling for your GPU: 50 of 100")
    post(page, {"kind": "recovered", "message": LOST, "step": 20, "lost_steps": 10, "engine": ON_GPU["engines"][0]})
    post(page, {"kind": "engine", "engine": CPU, "engines": [CPU, GPU], "step": 20, "memory": None})
    expect(page.locator("#run-status")).to_contain_text("Paused at step 20, the last save.")
    expect(page.locator("#engine-name")).to_have_text("CPU, WebAssembly SIMD, 2 threads")
    page.click("#train-resume")
    go_on(page, 5)
    stepping(page, 24)


def test_a_fault_that_ends_the_run_has_one_way_on(open_page):
    message = "webgpu: the GPU stays until the run ends; it went away; the run stopped; go on from the last save."
    page = open_page(fake=ON_GPU | {"hold": 50, "steps": 100, "runs": [
        {"run_id": "r1", "name": "hamlet", "step": 40, "steps": 100, "preset": "medium", "parameters": 842496, "resumable": True}]})
    page.click("#resume-offer-go")
    standing_at(page, 90)
    post(page, {"kind": "saved", "run_id": "r1", "step": 80, "bytes": 1, "seconds": 0.1, "at": 0})
    post(page, {"kind": "failed", "code": "E-DEVICE-LOST", "message": message})
    page.evaluate("(event) => tell({ kind: 'test.end', event })", {"kind": "stopped", "reason": "error", "message": message, "saved": False})
    phase(page, "broken")
    expect(page.locator("#train-error p")).to_have_text(message)
    expect(page.locator("#run-status")).to_have_text("The run has ended early.")
    for name in ("write", "extend", "pause", "stop"):
        expect(page.locator(f"#train-{name}")).to_be_hidden()
    expect(page.locator("#train-again")).to_be_visible()
    expect(page.locator("#train-way-out")).to_have_text("Go on from step 80")
    page.click("#train-way-out")
    expect(page.locator("#train-error")).to_be_hidden()
    phase(page, "ended")  # the fake has little left to train
    assert [(each["run_id"], each["steps"]) for each in sent(page, "runs.continue")] == [("r1", 60), ("r1", 20)]


def test_a_fault_without_a_save_offers_no_way_on(open_page):
    page = open_page(fake=ON_GPU | {"hold": 10})
    page.click("#train-start")
    standing_at(page, 10)
    page.evaluate("(event) => tell({ kind: 'test.end', event })", {"kind": "stopped", "reason": "error", "message": "The engine failed.", "saved": False})
    phase(page, "broken")
    assert page.locator("#train-way-out").count() == 0
    expect(page.locator("#train-again")).to_be_focused()
    page.keyboard.press("Enter")
    phase(page, "running")


def test_the_panel_is_empty_without_a_trainer(open_page):
    page = open_page(fake=ON_GPU | {"fail": {"fatal": ["The trainer has stopped."]}})
    page.click("#train-start")
    expect(page.locator("#engine-name")).to_have_text("Stopped")
    panel(page)
    for name in ("choices", "figures", "memory-box"):
        expect(page.locator(f"#engine-{name}")).to_be_hidden()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_width(open_page, width, scheme):
    page = open_page(fake={"engines": [CPU, PLAIN_GPU], "started": {"memory": MEMORY}, "hold": 30, "steps": 100, "fail": {"engine": "No graphics adapter was found."}},
                     viewport={"width": width, "height": 740}, color_scheme=scheme)
    page.click("#train-start")
    standing_at(page, 30)
    post(page, {"kind": "recovered", "message": LOST, "step": 20, "lost_steps": 10, "engine": CPU})
    post(page, {"kind": "preparing", "done": 40, "total": 100})
    panel(page)
    page.click("#engine-gpu")
    expect(page.locator("#engine-error")).to_be_visible()
    box = page.locator("#engine .pop").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= 740
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNLABELLED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert number(page, "step") == 20
