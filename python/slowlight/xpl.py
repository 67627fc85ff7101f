"""Time-sequence graphs as files for xplot, in the style of tcptrace.

Data is white, retransmissions are red, acknowledgments green, the window yellow, and data received
out of order purple. The file has every packet, because xplot can zoom in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slowlight.exchange import Exchange


def _steps(points: Iterable[tuple[float, int]], color: str) -> Iterator[str]:
    yield color
    before: tuple[float, int] | None = None
    for at_s, value in points:
        if before is not None:
            yield f"line {before[0]:.6f} {before[1]} {at_s:.6f} {before[1]}"
            if value != before[1]:
                yield f"line {at_s:.6f} {before[1]} {at_s:.6f} {value}"
            else:
                # A duplicate.
                yield f"utick {at_s:.6f} {value}"
        before = (at_s, value)


def text(exchange: Exchange, title: str) -> str:
    """Text of the file."""
    lines = ["double signed", "title", title, "xlabel", "time (s)", "ylabel", "byte of the file"]
    for low_s, high_s in exchange.outages:
        lines += ["blue", f"box {low_s:.6f} 0", f"line {low_s:.6f} 0 {low_s:.6f} {exchange.high}",
                  f"line {high_s:.6f} 0 {high_s:.6f} {exchange.high}"]  # fmt: skip
    lines += _steps(exchange.acks, "green")
    lines += _steps(exchange.window, "yellow")
    for one in exchange.data:
        lines.append("red" if one.again else "orange" if one.parity else "white")
        lines.append(f"darrow {one.at_s:.6f} {one.low}")
        lines.append(f"uarrow {one.at_s:.6f} {one.high}")
        lines.append(f"line {one.at_s:.6f} {one.low} {one.at_s:.6f} {one.high}")
        if one.again:
            lines += [f"atext {one.at_s:.6f} {one.high}", "R"]
        if one.lost:
            lines += ["red", f"x {one.at_s:.6f} {(one.low + one.high) // 2}"]
    for spans, color in ((exchange.arrived, "purple"), (exchange.requested, "magenta")):
        lines.append(color)
        for span in spans:
            lines.append(f"line {span.at_s:.6f} {span.low} {span.at_s:.6f} {span.high}")
    reached = 0
    marks = sorted(exchange.marks, key=lambda mark: mark.at_s)
    data = iter(sorted(exchange.data, key=lambda one: one.at_s))
    ahead = next(data, None)
    for mark in marks:
        while ahead is not None and ahead.at_s <= mark.at_s:
            reached, ahead = max(reached, ahead.high), next(data, None)
        lines += ["green" if mark.is_answer else "white", f"diamond {mark.at_s:.6f} {reached}",
                  f"rtext {mark.at_s:.6f} {reached}", mark.name]  # fmt: skip
    return "\n".join([*lines, "go"]) + "\n"
