"""Studies of real data, each one command: ``python studies/run.py STUDY --data DIR --output DIR``."""
