"""Pairs and preferences: every way in, every fault named by its line, and batches in which the answer alone counts."""

import json

import numpy as np
import pytest

import posttrainllm as pt
from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.pairs import Pairs, Preferences, Template
from posttrainllm.data.tokenizers import ByteTokenizer
from posttrainllm.errors import ConfigError, DataError
from posttrainllm.model.config import GPTConfig

ROWS = [("What is the sea?", "Water."), ("And the sky?", "Air,\n\"clear\".")]
PLAIN = Template("", "", "|")


def numbers(data):
    return np.frombuffer(data, "<i4")


@pytest.mark.parametrize("prompt", ["prompt", "instruction", "question"])
@pytest.mark.parametrize("response", ["response", "completion", "output", "answer"])
def test_jsonl_under_the_names_in_use(prompt, response):
    text = "\n".join(json.dumps({response: b, "more": 1, prompt: a}) for a, b in ROWS)
    assert Pairs.from_jsonl(f"\n{text}\n\n").rows == ROWS


def test_a_json_list_and_typed_in_rows():
    dicts = [{"prompt": a, "response": b} for a, b in ROWS]
    assert Pairs.from_jsonl(json.dumps(dicts, indent=1)).rows == ROWS
    assert Pairs.from_list(dicts).rows == Pairs.from_list(ROWS).rows == Pairs.from_list(map(list, ROWS)).rows == ROWS


def test_alpacas_input_follows_the_instruction():
    row = {"instruction": "Translate.", "input": "la mer", "output": "the sea"}
    assert Pairs.from_list([row, row | {"input": ""}]).rows == [("Translate.\nla mer", "the sea"), ("Translate.", "the sea")]


def test_a_conversation_of_messages():
    messages = [{"role": r, "content": c} for r, c in (("system", "Be brief."), ("user", "The sea?"), ("assistant", "Water."))]
    assert Pairs.from_list([{"messages": messages}]).rows == [("Be brief.\nThe sea?", "Water.")]
    other = [*messages[:-1], {"role": "assistant", "content": "Land."}]
    found = [("Be brief.\nThe sea?", "Water.", "Land.")]
    assert Preferences.from_list([{"chosen": messages, "rejected": other}]).rows == found
    given = {"prompt": messages[:-1], "chosen": messages[-1:], "rejected": other[-1:]}
    with pytest.raises(DataError, match="item 1: chosen ends with the assistant's answer to what came before; assistant came"):
        Preferences.from_list([given])
    assert Preferences.from_list([given | {"chosen": "Water.", "rejected": "Land."}]).rows == found


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_csv_with_quotes_and_line_breaks(mark):
    text = f'prompt{mark}response\nWhat is the sea?{mark}Water.\n\nAnd the sky?{mark}"Air,\n""clear""."\n'
    assert Pairs.from_csv(text).rows == ROWS
    assert Pairs.from_csv(text).lines == [2, 4]


def test_files_by_their_endings(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"prompt": "a", "response": "b"}\r\n{"prompt": "c", "response": "d"}\r\n')
    (tmp_path / "a.csv").write_text("question,answer\na,b\nc,d\n")
    assert Pairs.from_file(tmp_path / "a.jsonl").rows == Pairs.from_file(tmp_path / "a.csv").rows == [("a", "b"), ("c", "d")]
    assert Pairs.from_text('{"prompt": "a", "response": "b"}', "pasted").rows == [("a", "b")]
    assert Pairs.from_text("prompt,response\na,b", "pasted").rows == [("a", "b")]
    with pytest.raises(DataError, match="a text file that can be read"):
        Pairs.from_file(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"prompt,response\na,\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        Pairs.from_file(tmp_path / "b.csv")


GOOD = '{"prompt": "a", "response": "b"}\n'
FAULTS = {
    "not JSON": (GOOD + "{oops}", "x, line 2: it is JSON; this is not: .*; correct it: a line is one JSON object"),
    "deep": (GOOD + '{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}", "x, line 2: it nests at most 16 deep"),
    "cut off": (GOOD + "[" * 100_000, "x, line 2: it nests at most 16 deep and closes what it opens"),
    "twice": (GOOD + '{"prompt": "a", "prompt": "b"}', "x, line 2: it names each thing once; 'prompt' is there twice"),
    "a list": (GOOD + "[1]", "x, line 2: a pair is a JSON object; a list came"),
    "no response": (GOOD + '\n{"prompt": "a", "reply": "b"}', "x, line 3: it has a response .*; it has prompt, reply; rename"),
    "no prompt": ('{"response": "b"}', "x, line 1: it has a prompt .*; it has response; rename"),
    "a number": (GOOD + '{"prompt": "a", "response": 4}', "x, line 2: response is a text; a int came"),
    "empty": (GOOD + '{"prompt": "a", "response": " "}', "x, line 2: response holds at least one letter"),
    "nothing": ("\n", "pairs: at least one row; x has none"),
    "roles": ('{"messages": [{"role": "user", "content": "a"}]}', "x, line 1: messages ends with the assistant's"),
    "a message": ('{"messages": ["a"]}', "x, line 1: messages is a list of messages with role and content; a str came"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_names_its_line(what):
    text, says = FAULTS[what]
    with pytest.raises(DataError, match=says):
        Pairs.from_jsonl(text, "x")


def test_faults_of_csv_and_lists():
    with pytest.raises(DataError, match=r"x, line 3: a row has the header's 2 fields \(prompt, response\); 3 came; put a text"):
        Pairs.from_csv("prompt,response\na,b\na,b,c\n", "x")
    with pytest.raises(DataError, match="x, line 2: it is CSV with a header; it is not"):
        Pairs.from_csv('prompt,response\na,"b', "x")
    with pytest.raises(DataError, match="x, line 1: it has a response .*; it has prompt, reply; rename"):
        Pairs.from_csv("prompt,reply\na,b\n", "x")
    with pytest.raises(DataError, match="x, line 1: a header names each field once; 'prompt' is there twice"):
        Pairs.from_csv("prompt,prompt,response\na,b,c\n", "x")
    with pytest.raises(DataError, match="typed in, item 2: it holds a prompt, a response; 3 came"):
        Pairs.from_list([("a", "b"), ("a", "b", "c")])
    with pytest.raises(DataError, match="typed in, item 1: it holds a prompt, a chosen answer, a rejected answer; 2 came"):
        Preferences.from_list([("a", "b")])
    with pytest.raises(DataError, match="x, line 1: it has a field rejected; it has prompt, chosen"):
        Preferences.from_jsonl('{"prompt": "a", "chosen": "b"}', "x")
    with pytest.raises(ConfigError, match="end is a text"):
        Template(end="")
    with pytest.raises(ConfigError, match="cut or refuse"):
        Pairs.from_list(ROWS, long="wrap")


def test_answers_alike_prefer_nothing_and_are_counted():
    found = Preferences.from_list([("a", "b", "c"), ("a", "b", "b\n")])
    assert len(found) == 1 and found.facts(16)["left_out"] == 1
    with pytest.raises(DataError, match="at least one row"):
        Preferences.from_list([("a", "b", "b")])


def test_answers_alike_when_cut_are_left_out_and_said():
    from posttrainllm.model.config import GPTConfig

    config = GPTConfig(layers=1, channels=8, heads=1, context=8)
    rows = [("a", "b", "c"), ("a", "12345678x", "12345678y"), ("a", "b", "b")] + [("q", "1", "2")] * 2
    found = Preferences.from_list(rows, template=PLAIN).split_at(0.0)
    part, _ = found.parts(8)
    assert part.indices == [0, 2, 3] and len(part.rows) == len(part.lengths) == 3
    facts = found.facts(8)
    assert (facts["rows"], facts["left_out"], facts["alike_when_cut"], facts["cut_answers"]) == (4, 2, 1, 0)
    said = found.advice(config)
    assert "Left out because their two answers are alike: 1 of 5 rows." in said
    assert "Left out because their answers differ only after what fits the model's context of 8 tokens: 1 of 5 rows." in said
    whole = found.facts(64)
    assert (whole["left_out"], whole["alike_when_cut"]) == (1, 0), "a longer context tells them apart"
    with pytest.raises(DataError, match="differ within the context of 8 tokens; none of 1 to train on does"):
        Preferences.from_list([rows[1]], template=PLAIN).facts(8)
    with pytest.raises(DataError, match="11 came"):
        Preferences.from_list(rows, template=PLAIN, long="refuse").check(config)
    halves = Preferences.from_list([rows[0], rows[1]], template=PLAIN).split_at(0.5)
    assert halves.held_out == [1] and halves.facts(8)["held_out"] == 0 and halves.parts(8)[1] is halves.parts(8)[0]


def test_the_template_is_what_a_person_asks_with():
    pairs = Pairs.from_list([("ROMEO:", "\nSpeak.\n")])
    assert pairs.template.ask("ROMEO:") + pairs.template.answer(pairs.rows[0][1]) == "ROMEO:\nSpeak.\n\n"


def test_only_the_answer_and_its_end_are_targets():
    pairs = Pairs.from_list([("ab", "xyz")], template=PLAIN).split_at(0.0)
    tokens, targets = map(numbers, pairs.batches(8, 2, 0).next())
    assert tokens.reshape(2, 8)[0].tolist() == [*b"abxyz", 0, 0, 0]
    assert targets.reshape(2, 8)[1].tolist() == [-100, *b"xyz|", -100, -100, -100]


def test_the_answers_of_a_preference_stand_in_two_halves():
    rows = [("a", "yes", "no"), ("b", "ja", "nein"), ("c", "oui", "non")]
    pairs = Preferences.from_list(rows, template=PLAIN).split_at(0.0)
    batches = pairs.batches(8, 4, 7)
    order = pairs.batches(8, 4, 7).take()
    tokens = numbers(batches.next()[0]).reshape(4, 8)
    said = [bytes(int(token) for token in row if token).decode() for row in tokens]
    assert said == [rows[i][0] + rows[i][j] for j in (1, 2) for i in order]
    assert len(pairs.batches(8, 1, 7).take()) == 1, "a batch of one still has both answers"


def test_what_is_too_long_is_cut_and_counted_or_refused():
    rows = [("p" * 10, "abc"), ("q", "r" * 20), ("s", "t")]
    pairs = Pairs.from_list(rows, template=PLAIN).split_at(0.0)
    facts = pairs.facts(8)
    assert (facts["cut_prompts"], facts["cut_answers"], facts["longest_tokens"]) == (1, 1, 22)
    part = pairs.parts(8)[0]
    assert [bytes(row[0].tokens.tolist()) for row in part.rows] == [b"pppppabc|", b"qrrrrrrrr", b"st|"]
    assert "1 prompt loses its beginning and 1 answer its end" in " ".join(pairs.advice(GPTConfig(1, 8, 1, 8)))
    refusing = Pairs.from_list(rows, "mine", PLAIN, long="refuse").split_at(0.0)
    with pytest.raises(DataError, match=r"mine, line 1: .*at most context \+ 1 = 9 tokens; 14 came"):
        refusing.check(GPTConfig(1, 8, 1, 8))
    refusing.check(GPTConfig(1, 8, 1, 32))
    both = Preferences.from_list([("p" * 10, "abc", "abcdef")], template=PLAIN).split_at(0.0).parts(8)[0]
    assert [bytes(each.tokens.tolist()) for each in both.rows[0]] == [b"ppabc|", b"ppabcdef|"], "both answers keep one prompt"


def test_every_row_is_seen_once_an_epoch_and_a_cursor_goes_on_exactly():
    rows = [(f"p{i}", f"r{i}") for i in range(10)]
    pairs = Pairs.from_list(rows).split_at(0.0)
    batches = pairs.batches(16, 3, 5)
    seen = [batches.take() for _ in range(20)]
    flat = [i for take in seen for i in take]
    assert all(sorted(flat[10 * e : 10 * e + 10]) == list(range(10)) for e in range(6))
    assert flat[:10] != flat[10:20] and flat[:10] != sum((pairs.batches(16, 3, 6).take() for _ in range(1)), [])
    going = pairs.batches(16, 3, 5)
    for _ in range(7):
        going.next()
    assert pairs.batches(16, 3, 5, going.cursor).next() == going.next()
    one, many = pairs.batches(16, 3, 5), pairs.batches(16, 3, 5)
    tokens, targets = many.block(4)
    assert tokens.shape == targets.shape == (4, 3, 16) and tokens.dtype == np.int32
    assert [(t.tobytes(), g.tobytes()) for t, g in zip(tokens, targets)] == [one.next() for _ in range(4)]
    assert one.cursor == many.cursor


def test_what_is_held_out_is_never_trained_on():
    pairs = Pairs.from_list([(f"p{i}", f"r{i}") for i in range(40)]).split_at(0.25)
    assert len(pairs.held_out) == 10 and not set(pairs.held_out) & set(pairs.kept) and max(np.diff(pairs.held_out)) <= 5
    assert sorted(pairs.held_out + pairs.kept) == list(range(40))
    measured = b"".join(tokens for tokens, _ in pairs.evaluation(16, 4, 10_000))
    for index in pairs.held_out:
        assert np.array(list(f"p{index}\n".encode()), "<i4").tobytes() in measured
    few = Pairs.from_list(ROWS)
    assert few.held_out == [] and few.parts(64)[0] is few.parts(64)[1]
    assert "too few to hold some out" in " ".join(few.advice(GPTConfig(1, 8, 1, 64)))


def test_an_evaluation_does_not_depend_on_the_batch():
    pairs = Preferences.from_list([(f"p{i}", f"r{i}", f"s{i}") for i in range(30)])

    def rows(batch):
        found = pairs.evaluation(16, batch, 64)
        return b"".join(tokens for tokens, _ in found)[: 2 * 3 * 16 * 4]

    assert rows(1) == rows(4) == rows(5)


def test_bpe_tokens_of_a_prompt_are_those_of_writing():
    text = "".join(a + b for a, b in ROWS) * 9
    tokenizer = BPETokenizer.train(text.encode(), 300)
    pairs = Pairs.from_list(ROWS).tokens(tokenizer).split_at(0.0)
    (row,) = pairs.parts(64)[0].rows[0]
    asked = list(tokenizer.encode(pairs.template.ask(ROWS[0][0])))
    assert list(row.tokens[: row.first]) == asked and len(asked) < len(ROWS[0][0])
    assert tokenizer.decode(row.tokens[row.first :]) == "Water.\n\n"
    answers = "".join(pairs.template.answer(b) for _, b in ROWS)
    counted = sum(len(tokenizer.encode(pairs.template.answer(b))) for _, b in ROWS)
    assert pairs.bytes_per_token() == pytest.approx(len(answers) / counted)
    assert Pairs.from_list(ROWS).tokens(ByteTokenizer()).bytes_per_token() == 1.0


def test_the_hash_is_of_rows_and_template():
    first = Pairs.from_list(ROWS)
    assert first.sha256 == Pairs.from_jsonl("\n".join(json.dumps({"prompt": a, "response": b}) for a, b in ROWS)).sha256
    assert len({first.sha256, Pairs.from_list(ROWS[::-1]).sha256, Pairs.from_list(ROWS, template=PLAIN).sha256}) == 3


def test_half_a_surrogate_pair_harms_nothing():
    pairs = Pairs.from_jsonl('{"prompt": "\\ud83d", "response": "\\ud83d b"}').split_at(0.0)
    assert pairs.parts(32)[0].counted and pairs.facts(32)["rows"] == 1 and pairs.bytes_per_token() == 1.0


def test_they_are_public():
    assert pt.Pairs is Pairs and pt.Preferences is Preferences and pt.Template is Template
