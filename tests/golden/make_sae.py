"""Makes sae.npz: what SAELens makes of two autoencoders that were saved here. Run with SAELens 6.54 (PyTorch 2.13, CPU), from the
repository's root:

    PYTHONPATH=pysrc python -m tests.golden.make_sae

Kept, by kind: the rows, its feature activations and reconstructions of them, and its own files after it saved what it had loaded.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from sae_lens import SAE, __version__

from posttrainllm.study.sae import CONFIG, WEIGHTS
from tests.study.golden import small

FILE = Path(__file__).with_name("sae.npz")


def main():
    found = {"version": np.array(__version__), "x": np.random.default_rng(1).standard_normal((16, 24)).astype(np.float32)}
    for kind in ("topk", "l1"):
        with tempfile.TemporaryDirectory() as folder:
            small(kind).save(folder, model_name="tiny")
            theirs = SAE.load_from_disk(folder, device="cpu")
            assert theirs.cfg.metadata.hook_name == "blocks.1.hook_resid_post"
            with torch.no_grad():
                acts = theirs.encode(torch.tensor(found["x"]))
                found |= {f"{kind} acts": acts.numpy(), f"{kind} y": theirs.decode(acts).numpy()}
            theirs.save_model(folder)
            for name in (CONFIG, WEIGHTS):
                found[f"{kind} {name}"] = np.frombuffer((Path(folder) / name).read_bytes(), np.uint8)
    np.savez_compressed(FILE, **found)
    print(f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes, SAELens {__version__}")


if __name__ == "__main__":
    main()
