"""The real transformers, tokenizers and peft: folders that they wrote load here, and ours load there, with equal numbers.

In float64 both sides agree to rounding. In float32 what may differ is derived as in tests/model/test_parity.py: the float64 judge
runs again on weights moved by one eps of their size, and an engine may stray a few times as far as that moves its logits.
"""

import json

import numpy as np
import pytest

from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.decode.generate import write
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import Adapter, LoRAConfig, shapes, sizes_of
from posttrainllm.model.program import forward
from tests.helpers.peers import peer
from tests.store.hf_samples import BPE, OTHER, PLAIN, TEXT, arrays, checkpoint

torch, transformers = peer("torch"), peer("transformers")

from posttrainllm.train.exchange import write_hf

EPS = 2.0**-23
TIMES, TRIALS = 4.0, 2
SIZES = {"n_positions": 20, "n_embd": 24, "n_layer": 2, "n_head": 3, "bos_token_id": 0, "eos_token_id": 0}
TOKENS = [1, 2, 77, 3, 200, 9, 5, 5, 254, 31, 64, 12]


def theirs(dtype=None, **changes):
    """A GPT-2 of transformers with weights that matter."""
    torch.manual_seed(3)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES | {"vocab_size": 256} | changes)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if "ln_" in name and name.endswith("weight") else 0.0, 0.3)
    model.tie_weights()
    return model if dtype is None else model.to(dtype)


def their_logits(model, tokens):
    with torch.no_grad():
        return model.double()(torch.tensor([tokens])).logits[0].numpy()


def our_logits(model, tokens):
    """float64 on the judge; what a caller gets elsewhere."""
    if not hasattr(model.machine, "download_f64"):
        return np.array([list(row) for row in model.logits_of(tokens, len(tokens))])
    each = forward(model.config, 1, len(tokens))
    model.make_room(each)
    model.machine.upload(each_address(each.tokens), np.array(tokens, "<i4").tobytes())
    model.run(each)
    return model.machine.download_f64(*each.address("logits")).reshape(len(tokens), -1)


def each_address(value):
    from posttrainllm.compile.tape import address

    return address(value)


def allowed_in_float32(model, tokens):
    """How far float32 logits may be from a judge's, by moving its weights by an eps."""
    expected, moved = our_logits(model, tokens), 0.0
    for trial in range(TRIALS):
        rng = np.random.default_rng(trial)
        for value in model.program.layout.values().values():
            part = model.machine._part(each_address(value), value.nbytes // 4)
            part[...] = part * (1 + EPS * rng.choice([-1.0, 1.0], part.shape))
        moved = max(moved, float(np.abs(our_logits(model, tokens) - expected).max()))
    return TIMES * max(moved, 4 * EPS * float(np.abs(expected).max()))


CASES = {
    "as GPT-2": {},
    "the tanh form by its other name": {"activation_function": "gelu_pytorch_tanh"},
    "exact gelu": {"activation_function": "gelu"},
    "a head of its own": {"tie_word_embeddings": False},
    "a narrow MLP": {"n_inner": 40},
    "all at once": {"activation_function": "gelu", "tie_word_embeddings": False, "n_inner": 100},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_what_transformers_saved_says_the_same_here(changes, tmp_path):
    model = theirs(**changes)
    model.save_pretrained(tmp_path)
    expected = their_logits(model, TOKENS)
    judge = GPT.from_hf(tmp_path, device="reference")
    assert np.abs(our_logits(judge, TOKENS) - expected).max() < 1e-12 * np.abs(expected).max()
    allowed = allowed_in_float32(judge, TOKENS)
    assert allowed < 1e-4 * np.abs(expected).max(), "or nothing is shown"
    model = GPT.from_hf(tmp_path, device="cpu", threads=1)
    assert np.abs(our_logits(model, TOKENS) - expected).max() <= allowed
    model.close()


def test_without_the_prefix_in_shards_and_in_half_precision(tmp_path):
    model = theirs()
    model.transformer.save_pretrained(tmp_path / "bare")
    assert "wte.weight" in dict(peer("safetensors.torch").load_file(tmp_path / "bare" / "model.safetensors"))
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    expected = their_logits(model, TOKENS)
    for folder in ("bare", "shards"):
        got = our_logits(GPT.from_hf(tmp_path / folder, device="reference"), TOKENS)
        assert np.abs(got - expected).max() < 1e-12 * np.abs(expected).max(), folder
    for dtype in (torch.float16, torch.bfloat16):
        model = theirs(dtype)
        model.save_pretrained(tmp_path / "half")
        expected = their_logits(model, TOKENS)
        got = our_logits(GPT.from_hf(tmp_path / "half", device="reference"), TOKENS)
        assert np.abs(got - expected).max() < 1e-12 * np.abs(expected).max(), dtype


def test_a_head_that_differs_counts_here_as_there(tmp_path):
    library = peer("safetensors.torch")
    theirs().save_pretrained(tmp_path)
    tensors = library.load_file(tmp_path / "model.safetensors")
    library.save_file(tensors | {"lm_head.weight": torch.randn(256, 24)}, tmp_path / "model.safetensors", {"format": "pt"})
    expected = their_logits(transformers.GPT2LMHeadModel.from_pretrained(tmp_path), TOKENS)
    got = our_logits(GPT.from_hf(tmp_path, device="reference"), TOKENS)
    assert np.abs(got - expected).max() < 1e-12 * np.abs(expected).max()


def test_the_same_greedy_tokens(tmp_path):
    """Prompt and continuation, by their generate and ours, byte for byte."""
    for changes in (CASES["as GPT-2"], CASES["all at once"]):
        model = theirs(**changes)
        model.save_pretrained(tmp_path)
        model.generation_config.eos_token_id = model.config.eos_token_id = None
        prompt = list(b"Whether")
        found = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)[0].tolist()
        ours = GPT.from_hf(tmp_path, device="cpu", threads=1)
        tokens = list(prompt)
        for _ in range(12):
            tokens.append(int(np.argmax(ours.logits(tokens))))
        assert tokens == found
        text = "".join(piece.text for piece in write(ours, "Whether", 12, temperature=0.0))
        assert text == bytes(found[7:]).decode("utf-8", "replace")
        ours.close()


@pytest.mark.parametrize("config", [PLAIN, OTHER], ids=["as GPT-2, bytes", "all at once, BPE"])
def test_what_is_written_here_says_the_same_there(config, tmp_path):
    write_hf(checkpoint(config), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(model).__name__ == "GPT2LMHeadModel" and model.dtype == torch.float32
    found = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    from posttrainllm.store.hf_weights import theirs as their_name

    assert found.keys() == {their_name(name) for name in arrays(config)}
    assert all(np.array_equal(found[their_name(name)], array) for name, array in arrays(config).items())
    assert (model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()) == config.tied
    expected = our_logits(GPT.from_hf(tmp_path, device="reference"), TOKENS)
    assert np.abs(their_logits(model, TOKENS) - expected).max() < 1e-12 * np.abs(expected).max()
    model.generate(torch.tensor([[1, 2]]), max_new_tokens=2, do_sample=False, pad_token_id=0)


TEXTS = ["", "Whether 'tis nobler", "  two  spaces\n\n\ttab", "héllo wörld — “quotes” 🎭", "a<|endoftext|>b", "I'll we've 123 4567 x1y2"]


@pytest.mark.parametrize("tokenizer", [None, BPE], ids=["bytes", "BPE"])
def test_their_tokenizer_gives_our_ids(tokenizer, tmp_path):
    one = checkpoint(OTHER if tokenizer else PLAIN, tokenizer)
    write_hf(one, tmp_path)
    from posttrainllm.data.tokenizers import from_dict

    theirs_, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), from_dict(one.tokenizer)
    assert len(theirs_) == ours.vocabulary
    for text in TEXTS:
        ids = theirs_(text)["input_ids"]
        assert ids == list(ours.encode(text)) and theirs_.decode(ids) == text, text
    if tokenizer:
        assert theirs_.eos_token_id == BPE.specials["<|endoftext|>"]
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
        older = transformers.AutoTokenizer.from_pretrained(tmp_path)  # vocab.json and merges.txt alone
        assert all(older(text)["input_ids"] == list(ours.encode(text)) for text in TEXTS if "<|" not in text)


def test_a_tokenizer_that_they_saved_gives_their_ids(tmp_path):
    """GPT2Tokenizer with its own special token, written by transformers 5."""
    theirs(vocab_size=300).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(BPETokenizer.train(TEXT.encode(), 299).to_json())
    made = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    assert made.vocab_size + len(made.added_tokens_decoder) >= 300
    made.save_pretrained(tmp_path)
    ours = GPT.from_hf(tmp_path, device="reference").tokenizer
    for text in TEXTS:
        assert list(ours.encode(text)) == made(text)["input_ids"], text
    assert json.loads((tmp_path / "tokenizer.json").read_text())["post_processor"]["type"] in ("TemplateProcessing", "ByteLevel")


def test_adapters_both_ways_on_a_model_of_another_shape(tmp_path):
    peft = peer("peft")
    config = OTHER
    write_hf(checkpoint(config), tmp_path / "base")
    lora = LoRAConfig(3, 6, ("attn.q", "attn.v", "mlp.fc", "mlp.proj"))  # a scaling that float32 holds exactly
    rng = np.random.default_rng(1)
    weights = {name: rng.standard_normal(shape).astype("<f4").tobytes() for name, shape in shapes(config, lora).items()}
    one = Adapter("one", lora, sizes_of(config), "", weights)
    one.save(tmp_path / "ours")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").double().eval()
    plain = their_logits(base, TOKENS)
    on = peft.PeftModel.from_pretrained(base, tmp_path / "ours", is_trainable=True)
    expected = their_logits(on, TOKENS)
    judge = GPT.from_hf(tmp_path / "base", device="reference")
    judge.attach(one)
    each = forward(config, 1, len(TOKENS), judge.lora)
    judge.make_room(each)
    judge.machine.upload(each_address(each.tokens), np.array(TOKENS, "<i4").tobytes())
    judge.run(each)
    got = judge.machine.download_f64(*each.address("logits")).reshape(len(TOKENS), -1)
    assert np.abs(got - expected).max() < 1e-12 * np.abs(expected).max() < 1e-3 * np.abs(expected - plain).max()
    on.float().save_pretrained(tmp_path / "theirs")
    again = Adapter.load(tmp_path / "theirs")
    assert again.weights == one.weights and again.sizes.hidden == 50 and again.config.shape == one.config.shape
    again.require_fit(config)
    judge.close()


def test_gradients_are_theirs(tmp_path):
    """A training step's gradients of every weight, where the head is its own and the GELU exact."""
    from posttrainllm.backends.reference import ReferenceMachine
    from tests.helpers.models import Model, batch, recipe
    from posttrainllm.store.hf_weights import theirs as their_name

    config = GPTConfig(2, 24, 3, 20, 300, 2, tied=False, activation="gelu", hidden=50)
    write_hf(checkpoint(config), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).double().eval()
    tokens, targets = batch(config, 1)
    logits = model(torch.tensor(tokens, dtype=torch.long)).logits.flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, torch.tensor(targets, dtype=torch.long).flatten(), ignore_index=-100).backward()
    ours = Model(ReferenceMachine(), config)
    for name, value in ours.program.layout.values().items():
        ours.write(value, arrays(config)[name].astype(float))
    ours.step(tokens, targets, recipe(1, 0.0))
    expected = {name: weight.grad.numpy() for name, weight in model.named_parameters()}
    for name, found in ours.gradients().items():
        wanted = expected[their_name(name)]
        assert np.abs(found - wanted).max() < 1e-11 * np.abs(wanted).max(), name
