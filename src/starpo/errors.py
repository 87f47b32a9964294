"""The one error class for mistakes a user can repair."""


class UserError(Exception):
    """A mistake in the input. The message names the file, key or row, the value, and what to do; no traceback."""
