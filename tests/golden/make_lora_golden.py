"""Makes lora.npz: what PyTorch and peft say about adapters on one small GPT. Run from the repository's root with torch 2.13 (CPU),
transformers and peft:

    PYTHONPATH=pysrc python -m tests.golden.make_lora_golden

Two adapters on the GPT of make_golden.py: "qv", of this program's, loaded by peft from its two files and saved again by peft; and
"all", made and saved by peft alone, with rsLoRA, on every linear. Kept are peft's files as it saved them, and peft's logits, loss
and gradients in float64, with how far its own float32 strays.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import peft
import torch
import transformers

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.model.lora import Adapter, LoRAConfig, shapes
from posttrainllm.store.peft import CONFIG as PEFT_CONFIG
from posttrainllm.store.peft import WEIGHTS, from_files
from tests.golden.make_golden import CONFIG
from tests.helpers.models import Model, batch
from tests.helpers.peft_models import PeftModel, get_peft_model, gpt2, gradients, logits_and_loss

FILE = Path(__file__).with_name("lora.npz")
SIZES = {"layers": CONFIG.layers, "channels": CONFIG.channels}


def random_adapter(lora, seed):
    """An adapter whose `up` is not zero: every gradient then says something."""
    rng = np.random.default_rng(seed)
    weights = {name: (0.3 * rng.standard_normal(shape)).astype("<f4") for name, shape in shapes(CONFIG, lora).items()}
    return Adapter("golden", lora, SIZES, "", {name: value.tobytes() for name, value in weights.items()})


def ours_through_peft(base, folder):
    """This program's files, as peft reads and saves them again."""
    random_adapter(LoRAConfig.of(), 1).save(folder / "ours")
    PeftModel.from_pretrained(gpt2(CONFIG, base, torch.float32), folder / "ours").save_pretrained(folder / "peft")


def peft_alone(base, folder):
    """An adapter that peft makes, its zeros replaced, and saves."""
    torch.manual_seed(2)
    modules = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
    how = peft.LoraConfig(r=3, lora_alpha=5, use_rslora=True, target_modules=modules, fan_in_fan_out=True, task_type="CAUSAL_LM")
    model = get_peft_model(gpt2(CONFIG, base, torch.float32), how)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    model.save_pretrained(folder / "peft")


def run(base, folder, dtype, adapter):
    """Logits, loss and gradients of batch 0."""
    model = PeftModel.from_pretrained(gpt2(CONFIG, base, dtype), folder, is_trainable=True).to(dtype)
    logits, loss = logits_and_loss(model, *batch(CONFIG, 0))
    loss.backward()
    found = {"logits": logits.detach().double().numpy(), "loss": np.array(loss.item())}
    return found | {f"gradient/{name}": value for name, value in gradients(model, adapter).items()}


def main():
    torch.set_num_threads(1)
    base = Model(ReferenceMachine(), CONFIG).weights()
    arrays, errors = {}, {}
    for case, make in (("qv", ours_through_peft), ("all", peft_alone)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make(base, folder)
            files = {each: (folder / "peft" / each).read_bytes() for each in (PEFT_CONFIG, WEIGHTS)}
            adapter = from_files(files[WEIGHTS], files[PEFT_CONFIG])
            golden, single = (run(base, folder / "peft", dtype, adapter) for dtype in (torch.float64, torch.float32))
        arrays |= {f"{case}/file/{each}": np.frombuffer(data, np.uint8) for each, data in files.items()}
        arrays |= {f"{case}/{each}": value for each, value in golden.items()}
        errors |= {f"{case}/{each}": float(np.abs(single[each] - value).max()) for each, value in golden.items()}
        print(case, adapter.config, "loss", golden["loss"])
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
    np.savez_compressed(FILE, about=np.array(json.dumps({"versions": versions, "float32_error": errors})), **arrays)
    print(f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
