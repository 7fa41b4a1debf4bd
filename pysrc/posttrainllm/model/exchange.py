"""What a live GPT is in other programs: Hugging Face's folder, both ways, and GGUF, out."""

from __future__ import annotations

from ..errors import ConfigError


class Exchange:
    """A GPT's way in and out of other programs' files."""

    @classmethod
    def from_hf(cls, path, *, device: str = "auto", threads: int | None = None, training: bool = False):
        """The GPT-2 in a folder (or the .zip of one) that transformers wrote: config.json, model.safetensors in one file or several,
        tokenizer.json (or vocab.json and merges.txt). `training=True` gives it room to train, AdamW's moments being zero.

        Weights go from the file to the engine in pieces of at most 4 MiB, half-precision ones widened on the way. Raises DataError,
        FormatError (also for what this program does not do, by its name), ConfigError, DeviceError.
        """
        from ..train.exchange import read_hf  # a layer above, as GPT.load: a convenience of the public API
        from ..train.state import model_of

        made = model_of(read_hf(path), False, device=device, threads=threads)
        if training:
            try:
                made.make_trainable()
            except BaseException:
                made.close()
                raise
        return made

    def to_hf(self, folder) -> int:
        """Write config.json, generation_config.json, model.safetensors (float32), tokenizer.json, vocab.json, merges.txt and
        tokenizer_config.json into a folder, which transformers loads with equal logits; returns their bytes.

        A tied head is left out of the weights, as transformers has it. Raises ConfigError with an adapter on (see `merged`), StoreError.
        """
        from ..train.exchange import write_hf

        return write_hf(self._as_checkpoint(folder), folder)

    def to_gguf(self, path, kind: str = "f32") -> int:
        """Write one GGUF file for llama.cpp, matrices as "f32", "f16" or "q8_0"; returns its bytes.

        A model of the exact GELU comes out near, not equal: see store/gguf.py. Raises ConfigError with an adapter on, StoreError.
        """
        from ..train.exchange import write_gguf

        return write_gguf(self._as_checkpoint(path), path, kind)

    def _as_checkpoint(self, path):
        from pathlib import Path

        from ..train.state import weights_checkpoint

        if self.lora is not None:
            raise ConfigError("export", "a plain model", "one with an adapter came", "save model.adapter, or export model.merged()")
        return weights_checkpoint(self, Path(path).stem or "model")
