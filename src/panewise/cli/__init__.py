"""The command line: jobs run, explained and drawn, and a demo."""
