"""Losses that compare over tokenizers: a token stands for as many bytes as its tokenizer makes it, a byte of text for itself."""

import math


def bits_per_byte(loss_nats: float, bytes_per_token: float) -> float:
    """A mean loss a token as bits a byte of text: with bytes as tokens the loss over ln 2."""
    return loss_nats / bytes_per_token / math.log(2)
