"""Kedro wiring: one folder per promised pipeline name, each importable by itself."""
