"""`python -m posttrainllm`: the command line."""

from .cli import app

app(prog_name="posttrainllm")
