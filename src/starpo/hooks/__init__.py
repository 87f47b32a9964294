"""Kedro hooks, one concern per file; ``settings.py`` lists them in the order in which they are called."""
