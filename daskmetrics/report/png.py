"""A PNG file of an array; the usual encoders take longer to choose their filters than a figure takes to draw."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_UP = 2  # the filter that stores every row as its difference from the one above (PNG specification, section 9)


def encode(pixels: NDArray[np.uint8], dpi: float) -> bytes:
    """The file of an image.

    Parameters
    ----------
    pixels : ndarray (height, width, 3) of uint8
        Red, green and blue.
    dpi : float
        Pixels per inch, for those who print it.

    Examples
    --------
    >>> encode(np.zeros((2, 3, 3), np.uint8), dpi=150)[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width, _ = pixels.shape
    rows = np.full((height, 1 + 3 * width), _UP, np.uint8)
    rows[:, 1:] = np.diff(pixels.reshape(height, -1), axis=0, prepend=np.uint8(0))
    per_metre = round(dpi / 0.0254)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"pHYs", struct.pack(">IIB", per_metre, per_metre, 1)),
        (b"IDAT", zlib.compress(rows.tobytes(), 3)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
