"""What one rank does, and how a checked configuration becomes a finished run folder.

run.py        configuration -> data, plan, folder, ranks, summary
rank.py       one rank: a dozen things built, one line each, then the loop
loop.py       epochs: train, synchronize, evaluate, record
step.py       one step: micro-batches, backward, update
stretch.py    some steps as one journal line
brake.py      makes a rank slower
precision.py  bfloat16, where a probe shows that it is faster
evaluate.py   exact metrics over all ranks
scatter.py    the same where rank 0 alone has the data
optimize.py   optimizers and learning-rate schedules
build.py      a model by name or of one's own; what goes with a strategy
progress.py   what rank 0 shows
"""
