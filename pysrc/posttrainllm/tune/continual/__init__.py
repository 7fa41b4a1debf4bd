"""Learning from corrections: records of what a user made of answers, curated, trained on, judged by a gate, kept as versions.

    records.py   Correction, and Corrections: what is kept in the base run's journal
    curate.py    what is learnt, what is held out, what is dropped and why
    replay.py    text that the base knows, mixed into the steps
    gate.py      the figures, and the bounds that they must keep
    improve.py   the whole: curate, sft, dpo, measure, promote or keep aside
    history.py   versions: what was learnt from what; comparing them, and going back
"""
