"""Curation: what is dropped and why, and that nothing held out is learnt, near duplicates included."""

import pytest

from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.pairs import Template
from posttrainllm.errors import ConfigError, DataError
from posttrainllm.tune.continual.curate import alike, curate, grouped, same
from posttrainllm.tune.continual.history import Version
from posttrainllm.tune.continual.records import Corrections

from .making import draw, prompts

FEW = {"least_learned": 1, "least_held_out": 1, "least_preferences": 1, "held_out_fraction": 0.1}


def made(*rows):
    kept = Corrections()
    for row in rows:
        kept.record(*row)
    return kept


def others(kept, count=6):
    """Rows with nothing wrong, so that enough are left."""
    for number, prompt in enumerate(prompts(count)):
        kept.record("correct", prompt, "", f"plain {number}")
    return kept


def curated(kept, **how):
    found = curate(kept, settings=FEW, **how)
    rows = {*found.sft.rows, *found.held_out.rows}
    liked = {row for each in (found.dpo, found.held_out_dpo) if each is not None for row in each.rows}
    return {row[1] for row in rows if row[0] == "Q?"}, {row[1:] for row in liked if row[0] == "Q?"}, {each.id: each.why for each in found.dropped}, found


def test_duplicates_count_once():
    kept = others(made(("accept", "Q?", "yes"), ("accept", " Q? ", "yes"), ("correct", "Q?", "no", "yes\n")))
    answers, _, dropped, _ = curated(kept)
    first, second, third = kept.list(0, 3)
    assert answers == {"yes"} and dropped.keys() == {second.id, third.id}
    assert dropped[second.id] == f"The same answer to the same prompt was kept before ({first.id})."


def test_the_newest_of_two_answers_to_one_prompt_wins():
    kept = others(made(("accept", "Q?", "yes"), ("edit", "Q?", "yes", "no"), ("correct", "Q?", "no", "perhaps")))
    answers, liked, dropped, _ = curated(kept)
    first, second, third = kept.list(0, 3)
    assert answers == {"perhaps"} and liked == set()
    assert dropped == {each.id: f"A newer record answers the same prompt otherwise ({by.id})." for each, by in ((first, second), (second, third))}


def test_an_edit_is_preferred_to_what_was_offered_and_a_retry_waits_for_what_is_kept():
    kept = others(made(("retry", "Q?", "bad"), ("retry", "Q?", "worse"), ("edit", "Q?", "so so", "good"), ("edit", "Q?", "poor", "good")))
    answers, liked, dropped, found = curated(kept)
    assert answers == {"good"} and liked == {("good", "bad"), ("good", "worse"), ("good", "so so"), ("good", "poor")} and not dropped
    assert {row.id for row in kept} == {*found.learned, *found.held_out_ids}


def test_a_retry_that_nothing_followed_is_dropped():
    kept = others(made(("accept", "Q?", "good"), ("retry", "Q?", "bad")))
    answers, liked, dropped, _ = curated(kept)
    assert answers == {"good"} and not liked and list(dropped.values()) == ["No answer to its prompt was accepted after it."]


def test_what_was_refused_after_it_was_accepted_is_not_learnt():
    kept = others(made(("accept", "Q?", "good"), ("retry", "Q?", "good")))
    answers, liked, dropped, _ = curated(kept)
    assert not answers and not liked and len(dropped) == 2
    kept = others(made(("retry", "Q?", "good"), ("accept", "Q?", "good")))
    answers, liked, dropped, _ = curated(kept)
    assert answers == {"good"} and not liked and "was accepted later" in dropped[kept.list()[0].id]


def test_a_refused_offer_stays_refused_when_a_newer_answer_wins():
    kept = others(made(("retry", "Q?", "bad"), ("accept", "Q?", "good"), ("correct", "Q?", "good", "best")))
    answers, liked, dropped, _ = curated(kept)
    assert answers == {"best"} and liked == {("best", "bad")} and len(dropped) == 1


def test_an_answer_too_long_for_the_context_is_dropped_and_said_in_tokens():
    kept = others(made(("correct", "Q?", "", "x" * 30)))
    long = kept.list()[0].id
    _, _, dropped, _ = curated(kept, context=31)
    assert dropped == {long: "Its answer takes 32 tokens with its end: more than the model's context of 31."}
    assert curated(kept, context=32)[0] == {"x" * 30} and curated(kept, context=31, template=Template(end="\n"))[0]
    tokenizer = BPETokenizer.train(b"xxxxxxxx" * 50, 260)
    assert curated(kept, context=31, tokenizer=tokenizer)[0] == {"x" * 30}, "counted in the model's own tokens"
    assert "lose their beginning" in curated(others(Corrections()), context=20)[3].notes[0]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_prompt_is_on_both_sides_nor_one_like_it(seed):
    kept = Corrections()
    for number, prompt in enumerate(prompts(40)):
        for version in (prompt, f"  {prompt.upper()} ", prompt.replace("?", " ?!"), f"{prompt}?"):
            kept.record("correct", version, "", f"answer {number}")
    found = curate(kept, settings={"seed": seed})
    learned, judged = ({row[0] for row in side.rows} for side in (found.sft, found.held_out))
    assert learned and judged and not {alike(each) for each in learned} & {alike(each) for each in judged}
    assert len({alike(each) for each in judged}) == 8 and not found.learned.keys() & found.held_out_ids.keys()


def test_near_duplicates_are_found_in_long_prompts_too():
    words = [f"w{draw(number, 5000)}" for number in range(400)]
    long = " ".join(words)
    assert grouped([long, long.replace(words[5], "other"), " ".join(f"v{draw(number + 999, 7000)}" for number in range(400))], 0.8) == [0, 0, 2]
    assert grouped(["What is the sea?", "what is the SEA", "What is the sky?"], 0.8) == [0, 0, 2]
    assert grouped(["abcdefghij klmnop", "abcdefghij klmnoq", "abcdefghij klmnqq"], 0.6) == [0, 0, 0], "by way of the second"
    assert grouped(["?!", "!?", "..."], 0.8) == [0, 1, 2] and same(" a\u0301 b ") == same("á  b")


@pytest.mark.parametrize("seed", range(8))
def test_the_split_does_not_move_as_others_come(seed):
    kept, settings = Corrections(), {"seed": seed}
    for prompt in prompts(30):
        kept.record("correct", prompt, "", "a")
    first = curate(kept, settings=settings)
    version = Version(1, "", True, (), {}, first.learned, first.held_out_ids, "", None, "", "")
    for prompt in prompts(45)[30:]:
        kept.record("correct", prompt, "", "a")
    kept.record("correct", first.sft.rows[0][0], "", "another answer to a prompt that was learnt")
    near = first.held_out.rows[0][0].upper()
    kept.record("correct", near, "", "one like a prompt that was held out")
    second = curate(kept, in_use=version, settings=settings)
    learned, judged = ({row[0] for row in side.rows} for side in (second.sft, second.held_out))
    assert {row[0] for row in first.sft.rows} <= learned and {row[0] for row in first.held_out.rows} | {near} <= judged
    assert len(judged) == 10


def test_the_same_records_are_curated_alike():
    kept = others(Corrections(), 40)
    assert curate(kept).texts_sha256 == curate(kept).texts_sha256
    assert curate(kept).held_out.rows == curate(list(kept)).held_out.rows != curate(kept, settings={"seed": 1}).held_out.rows


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (Corrections(), "0 and 0 are left of 0 records; correct more answers, to other prompts; nothing was changed"),
        (made(*[("correct", "Q?", "", f"a {number}") for number in range(40)]), "(39 dropped: 39: a newer record answers the same prompt otherwise)"),
        (made(*[("correct", f"Q?{' ' * number}", "", "a") for number in range(40)]), "39: the same answer to the same prompt was kept before"),
        (made(*[("retry", prompt, "no") for prompt in prompts(40)]), "40: no answer to its prompt was accepted after it"),
    ],
    ids=["none", "one prompt", "one answer", "only retries"],
)  # fmt: skip
def test_too_few_are_said_with_the_reasons(kept, said):
    with pytest.raises(DataError) as caught:
        curate(kept)
    assert said in str(caught.value) and caught.value.code == "E-DATA-SHORT" and "at least 8 answers to learn" in str(caught.value)


def test_settings_out_of_range_are_said():
    for settings in ({"held_out_fraction": 0.9}, {"least": 3}, {"seed": 1.5}):
        with pytest.raises(ConfigError, match="improve, curate"):
            curate(others(Corrections(), 20), settings=settings)
