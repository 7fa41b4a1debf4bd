"""The page's own Python, on MicroPython: wires the views to the worker. Started by index.html through PyScript."""

import js
from pyscript.js_modules import bridge

import adapters
import compare
import corpus
import device
import engine
import follow
import imports
import improve
import improve_records
import improve_write
import inside
import inside_attention
import inside_change
import inside_features
import inside_flow
import inside_lens
import inside_next
import inside_tuned
import keeping
import learn
import long_run
import memorise
import recipe
import runs
import sizes
import tabs
import token_tip
import token_view
import tokens
import train
import tune
import tune_data
import tune_follow
import tune_settings
import wire
import write
import write_draft
import write_rule

# The order decides who sees an event first: state and fields (engine, recipe), then the requests that read them.
for part in (tabs, engine, device, recipe, sizes, corpus, tokens, token_tip, write, write_rule, write_draft, runs, imports, long_run, train, follow, keeping, token_view,
             adapters, tune_data, tune_settings, tune, tune_follow, compare, memorise, improve_records, improve, improve_write, inside_attention, inside_lens, inside_next, inside_change, inside_flow, inside_features, inside_tuned, inside, learn, wire):
    part.start()

js.document.body.dataset.python = "ready"
js.performance.mark("usable")
bridge.chart.start()
bridge.replayPresses()
