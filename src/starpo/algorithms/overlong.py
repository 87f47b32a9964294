"""DAPO's soft penalty for responses that approach the length limit."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def overlong_penalty(response_tokens: ArrayLike, *, max_tokens: int, buffer: int) -> NDArray[np.float64]:
    """Soft overlong punishment (DAPO, arXiv 2503.14476, eq. 13).

    With length n, limit L = max_tokens and buffer b:

        0 where n <= L - b;   (L - b - n) / b where L - b < n <= L;   -1 where n > L

    so a response that was cut off at the limit gets -1, and the penalty grows towards it instead of jumping.

    Args:
        response_tokens: integer, any shape; sampled tokens per response.
        max_tokens: L, above 0.
        buffer: b, in 1..max_tokens.

    Returns:
        float64 of the same shape, in [-1, 0].

    Raises:
        ValueError: max_tokens or buffer out of range.

    Example: ``overlong_penalty([300, 350, 400, 999], max_tokens=400, buffer=100)`` is ``[0, -0.5, -1, -1]``.
    """
    if not 0 < buffer <= max_tokens:
        raise ValueError(f"buffer must be in 1..max_tokens ({max_tokens}), got {buffer}")
    lengths = np.asarray(response_tokens, dtype=np.float64)
    return np.clip((max_tokens - buffer - lengths) / buffer, -1.0, 0.0)
