"""What a command answered, for tests: its JSON, or its one line of error; and small CSV files."""

from __future__ import annotations

import json


def csv_file(file, *lines):
    """A file of these lines."""
    file.write_text("\n".join([*lines, ""]))
    return file


def told(answer, code=0):
    """The JSON of a command that ended with this code."""
    assert (answer.code, answer.err) == (code, "")
    return json.loads(answer.out)


def one_line(answer):
    """The only line of a command that was refused."""
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")
