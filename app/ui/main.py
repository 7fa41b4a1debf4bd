"""The page's own Python, on MicroPython: wires the views to the worker. Started by index.html through PyScript."""

import js
from pyscript.js_modules import bridge

import corpus
import device
import engine
import follow
import recipe
import runs
import sizes
import tabs
import train
import wire
import write

# The order decides who sees an event first: state and fields (engine, recipe), then the requests that read them.
for part in (tabs, engine, device, recipe, sizes, corpus, write, runs, train, follow, wire):
    part.start()

js.document.body.dataset.python = "ready"
js.performance.mark("usable")
bridge.chart.start()
bridge.replayPresses()
