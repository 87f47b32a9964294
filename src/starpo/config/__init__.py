"""Typed parameters: one frozen model per section of ``conf/*/parameters*.yml``.

A misspelt key, a value out of range or an impossible combination fails before any work, with the key, the value
and the remedy.
"""
