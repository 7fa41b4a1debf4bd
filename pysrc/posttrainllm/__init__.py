"""posttrainllm: train, post-train and open up small GPTs, in a browser tab or natively, in Python."""

__version__ = "0.1.0"
