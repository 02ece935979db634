"""WHAT: frozen descriptions of plans. Names and SQL text; standard library only."""
