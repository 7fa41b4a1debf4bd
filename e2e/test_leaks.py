"""Many runs one after another in one tab: what an engine took, it gives back."""

from __future__ import annotations

from pathlib import Path

from e2e.driver import Driver

MEDIUM_BYTES = 85 << 20  # what one run of `medium` takes; a leak shows as that much more a run


def renderer_bytes(browser) -> int:
    """Resident memory of the largest renderer process."""
    devtools = browser.new_browser_cdp_session()
    processes = devtools.send("SystemInfo.getProcessInfo")["processInfo"]
    devtools.detach()
    sizes = [0]
    for process in processes:
        status = Path(f"/proc/{process['id']}/status")
        if process["type"] == "renderer" and status.exists():
            sizes += [int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith("VmRSS")]
    return max(sizes)


def test_ten_runs_take_no_more_memory_than_a_few(browser, contexts, site):
    driver = Driver(contexts().new_page(), site.url)
    assert driver.wait("ready")["threads"] > 1  # the threaded engine is the one that once kept its memory for ever
    driver.ask("settings", sample_every_seconds=0)
    sizes = []
    for _ in range(10):
        driver.ask("train.start", preset="medium", training={"steps": 1, "evaluation_tokens": 2048})
        assert driver.wait("stopped")["reason"] == "finished"
        sizes.append(renderer_bytes(browser))
    assert sizes[-1] - sizes[2] < 3 * MEDIUM_BYTES, [size >> 20 for size in sizes]
