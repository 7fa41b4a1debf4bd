"""Outgrow the tab: the same run in PyTorch, on one device or, under torchrun, on several (extra `[torch]`).

    posttrainllm train --engine torch …
    torchrun --nproc-per-node=N -m posttrainllm.torch_engine …

Config, corpus, tokenizer, schedule, seed, batches and checkpoints are the package's own, and so are the first weights, bit for
bit: a run may begin in the tab, go on here and end in the tab. Arithmetic is PyTorch's, so that losses agree within rounding.

    initial.py   first weights from the seed, any range of a weight on any device
    network.py   the model in plain torch operations
    ranks.py     the processes of a run, and what they agree on
    wrapping.py  the model over the processes: one, DDP, FSDP2
    adamw.py     clipped AdamW as ops/adamw.py has it
    model.py     TorchGPT: what train/trainer.py trains
    gathering.py weights and moments, tensor by tensor, out of all processes and into them
    running.py   `posttrainllm train --engine torch`

Nothing outside this folder imports torch, and nothing imports this folder until it is asked for.
"""
