"""Functions that tests run in real ranks: called as function(world, **arguments), results are pickled."""
