#!/usr/bin/env python3
"""Draws what a command shows on a terminal: an SVG of the screen when a text first stands on it, and of the end.

Needs the package pyte (`pip install pyte`). The picture in docs/guide/training.md:

    cargo build --package torchrs-launcher && cargo build --example train
    tools/book/terminal_picture.py docs/guide/terminal.svg "epoch 10/15" \\
        $PWD/target/debug/torchrs-launch --nproc 2 $PWD/target/debug/examples/train
"""

import fcntl
import html
import os
import pty
import struct
import sys
import tempfile
import termios

import pyte

COLUMNS, ROWS = 136, 40
CELL, LINE, MARGIN = 7.22, 17, 14
# Of a screen, the first line and the last ones are shown.
LONGEST = 8


def screens(text, command):
    """The lines of the screen when `text` first stands in the bottom line that is in use, and at the end."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    lines = lambda: [line.rstrip() for line in screen.display]
    midway = None
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        if not data:
            break
        # Byte by byte: a line that is rewritten at once would never be seen.
        for at in range(len(data)):
            stream.feed(data[at : at + 1])
            if midway is None and data[at : at + 1] == b"\r":
                used = [line for line in lines() if line]
                if used and text in used[-1]:
                    midway = used
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0 or midway is None:
        sys.exit(f"terminal_picture: exit status {status}, `{text}` was {'not ' * (midway is None)}seen")
    return midway, [line for line in lines() if line]


def panel(lines, top):
    width = 2 * MARGIN + COLUMNS * CELL
    height = 2 * MARGIN + len(lines) * LINE - 4
    yield f'<rect x="0.5" y="{top + 0.5}" width="{width - 1:.0f}" height="{height}" rx="6" fill="#1b1f24"/>'
    for row, line in enumerate(lines):
        y = top + MARGIN + row * LINE + 10
        text = html.escape(line)
        yield f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{text}</text>'


def main():
    out, text, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    shown = " ".join(os.path.basename(part) if part.startswith("/") else part for part in command)
    out = os.path.abspath(out)
    # The run's folder is made where the command runs.
    os.chdir(tempfile.mkdtemp())
    parts, top = [], 0
    for lines in screens(text, command):
        lines = [f"$ {shown}"] + (lines if len(lines) <= LONGEST else [lines[0], "..."] + lines[2 - LONGEST :])
        parts += panel(lines, top)
        top += 2 * MARGIN + len(lines) * LINE + 8
    width = 2 * MARGIN + COLUMNS * CELL
    font = "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"12\" fill=\"#d7dde3\""
    with open(out, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {top}" {font}>\n')
        file.write("\n".join(parts) + "\n</svg>\n")


main()
