"""What several views need to know. Plain module variables: there is one page."""

ready = None  # the worker's `ready` event
corpus = None  # the last `corpus` event
tokens = None  # the last `tokens` event, where coming runs do not use bytes
plan = None  # the last `planned` event, of the present choice
run = None  # the last `started` or `opened` event
step = None  # the last `step` event of that run
model = None  # {run_id, name, step, tokenizer, parameters}: what Write would use
lost = False  # the worker has ended and was not started again yet
unsaved = False  # the last save of what is live failed, or there is no place for one
saved = None  # {run_id, step} of the last save of that run
tuning = False  # a tune is going
improving = False  # an improvement is going
adapter = None  # {adapter_id, name, strength} of the one that is on
phase = "idle"  # idle queued starting running pausing paused stopping ended broken
boot_message = "Loading the trainer"

_watchers = []


def watch(handler):
    _watchers.append(handler)


def changed():
    for handler in _watchers:
        handler()


def busy():
    return tuning or improving or phase in ("starting", "running", "pausing", "paused", "stopping")
