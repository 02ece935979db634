"""Published experiments, run again: what was published beside what is found here, with pictures."""
