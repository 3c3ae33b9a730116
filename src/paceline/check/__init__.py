"""Is this script data-parallel? Observe its ranks for a few steps, then judge what they saw.

    run.py             starts the ranks with observers installed, reads what they wrote, judges
      _rank.py         what a rank does: install, be the script, say how it ended
        _recorder.py   counts steps, decides how much is enough, writes observations as JSON lines
        _watch_*.py    patches of torch: world, data, model, gradients (in ranks alone: these import torch)
        _sketch.py     eight numbers that tell two large vectors apart
    observations.py    one rank's lines, read back; no torch
    judge.py           all findings, causes without their consequences
      samples.py replicas.py gradients.py cost.py      one judgement a function, pure

A rank writes facts and never judges; a judge compares ranks and starts nothing.
"""
