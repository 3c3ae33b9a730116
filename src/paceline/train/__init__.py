"""What one rank does, and how a checked configuration becomes a finished run folder.

run.py        configuration -> data, plan, folder, ranks, summary
rank.py       one rank: a dozen things built, one line each, then the loop
loop.py       epochs: train, synchronize, evaluate, record
step.py       one step: micro-batches, backward, update
evaluate.py   exact metrics over all ranks
optimize.py   optimizers and learning-rate schedules
progress.py   what rank 0 shows
"""
