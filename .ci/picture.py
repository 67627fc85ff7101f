"""Draws the README's picture: a command and what it prints on a terminal, as SVG.

.ci/picture.py target/debug/slowlight            writes docs/images/compare.svg
.ci/picture.py target/debug/slowlight --check    fails if it is not what the program prints
"""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "compare.svg"
COLUMNS = 96
COMMAND = 'slowlight compare --link geo --size "10 MB" --per 1e-3'
# Nothing is loaded from elsewhere, so the reader's own monospace font is used.
FORMAT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>Output of slowlight compare</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def printed(binary: str) -> str:
    """The command's output on a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    command = [binary, *shlex.split(COMMAND)[1:]]
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES"):
        environment.pop(name, None)
    # Progress goes to the standard error, which is no terminal here.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # Linux reports the closed end of a terminal as an error.
                break
            if not part:
                break
            output += part
        os.close(master)
        assert process.stderr is not None
        errors = process.stderr.read().decode()
    if process.returncode != 0:
        sys.exit(f"{COMMAND}: exit code {process.returncode}\n{errors}")
    return output.decode().replace("\r\n", "\n")


def drawn(text: str) -> str:
    """The SVG."""
    console = Console(
        record=True,
        width=COLUMNS,
        height=50,
        file=StringIO(),
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
    )
    console.print(Text(f"$ {COMMAND}", style="bold"))
    console.print(Text.from_ansi(text))
    return console.export_svg(
        title="slowlight", theme=MONOKAI, code_format=FORMAT, unique_id="slowlight"
    )


def main(arguments: list[str]) -> int:
    """The command."""
    if not arguments or arguments[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    svg = drawn(printed(arguments[0]))
    if "--check" not in arguments:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(svg, encoding="utf-8")
        return 0
    if PICTURE.is_file() and PICTURE.read_text(encoding="utf-8") == svg:
        return 0
    print("the README's picture is not what the program prints; `make reference` draws it")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
