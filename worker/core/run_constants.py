"""Names of the engine's regions, flags and limits."""

from __future__ import annotations

# Regions.
(
    REASONING,
    CONTENT,
    LABEL,
    OPENED,
    SECTION,
    HEADER,
    JSON,
    MEMBERS,
    PARAMS,
    KEY,
    TO_VALUE,
    VALUE,
    LITERALS,
    PYTHON,
    AFTER,
    MESSAGE_HEADER,
    BETWEEN,
    BODY_REASONING,
    BODY_CONTENT,
    BODY_DROPPED,
    ELEMENTS,
) = range(21)

# Flags.
SEEN_REASONING = 1  # reasoning other than whitespace was said
SEEN = 1 << 1  # content other than whitespace was said
STRIP = 1 << 2  # newlines here are a template's separator
LONG = 1 << 3  # inside a whitespace run that is too long to be one
AFTER_CALL = 1 << 4  # nothing but whitespace since a call
OPEN = 1 << 5  # a call was begun and not ended
MUTE = 1 << 6  # a call that is none: parsed, not said
FROM_REASONING = 1 << 7  # the opener stood in reasoning
OPENER = 1 << 8  # an opener of reasoning may still begin the content
WROTE = 1 << 9  # the arguments' opening brace was written
GOOD = 1 << 10  # the arguments are whole
BAD = 1 << 11  # the arguments are no JSON object
LINE = 1 << 12  # a value stands at the start of a line
FRESH = 1 << 13  # nothing of the value was read
UNDECIDED = 1 << 14  # text or a call: `raw` keeps it
HAS_ARGUMENTS = 1 << 15  # the member that holds the arguments was met
STREAMING = 1 << 16  # the value is a string, said as it comes
SKIPPING = 1 << 17  # a repeated parameter: the first one stays
ARRAY = 1 << 18  # inside a list of calls
BARE = 1 << 19  # the call stands outside a section
RAW = 1 << 20  # inside a CDATA section of a value
IN_MATH = 1 << 21  # inside LaTeX, where backslashes are kept
NESTED = 1 << 22  # inside the object that holds name and arguments

_VALUE_FLAGS = LINE | FRESH | STREAMING | SKIPPING | RAW | NESTED
CALL_FLAGS = OPEN | MUTE | WROTE | GOOD | BAD | UNDECIDED | HAS_ARGUMENTS | _VALUE_FLAGS
"""Those that are forgotten when a call ends."""

SPACE = " \t\r\n"

# Caps, in code points. A region tests what it would hold with `Run.over`, and the length of a field of the run, by one
# of the caps listed for it; `Run.room` sees to it that both happen at the same character however the output is cut.
MAX_SPACE = MAX_SCALAR_VALUE = 64
MAX_HEADER = MAX_UNDECIDED = 256
MAX_VALUE = 16 * 1024
HELD_CAPS = (MAX_SPACE, MAX_HEADER)
FIELD_CAPS = (MAX_HEADER, MAX_VALUE)
"""Of `raw`, `key` and `value`."""

SLICE = MAX_SPACE
"""Longest text that regions get at once: no more than the least cap, so nothing can begin and overflow in one go."""
LARGE_SLICE = 1024
"""The same where no cap can be passed unseen. It has an end because what the region leaves of it is read again."""

MAX_KEYS = 64
MAX_RECIPIENT = 64
MAX_ELEMENTS = 128
