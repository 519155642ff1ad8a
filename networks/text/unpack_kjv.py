"""Unpacks the text of Debian's bible-kjv-text: unpack_kjv.py bible.data OUT.

The file begins with 80 bytes of title and padding; then come big-endian words of four bytes: 0, the
bytes of text in a window, the number of windows, and where each of them begins and the last ends.
A window is the output of compress(1) without its three bytes of header.
"""

import pathlib
import struct
import subprocess
import sys

_TITLE_BYTES = 80
_COMPRESS_HEADER = b"\x1f\x9d\x90"


def unpack(data):
    _, window_bytes, windows = struct.unpack_from(">III", data, _TITLE_BYTES)
    places = struct.unpack_from(f">{windows + 1}I", data, _TITLE_BYTES + 12)
    text = b""
    for i, (begin, end) in enumerate(zip(places, places[1:])):
        text += subprocess.run(["gzip", "-dc"], input=_COMPRESS_HEADER + data[begin:end],
                               stdout=subprocess.PIPE, check=True).stdout
        if i + 1 < windows and len(text) != (i + 1) * window_bytes:
            raise ValueError(f"window {i + 1} of {windows} is not {window_bytes} bytes of text")
    return text


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_bytes(unpack(pathlib.Path(sys.argv[1]).read_bytes()))
