"""Commands of the package: `python -m slowlight report NAME`, `… claims`, `… figures NAME`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from slowlight.errors import UserError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slowlight study", description="Report studies, check claims and draw figures."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, about: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=about, description=about)
        one.add_argument(
            "--results", metavar="FOLDER", type=Path, action="append",
            help="folder of results/NAME-EDITION or NAME-EDITION; repeatable "
            "[default: the current folder]",
        )  # fmt: skip
        return one

    report = command("report", "Write a page and a PDF: figures, tables, claims, provenance")
    report.add_argument("name", metavar="NAME", help="the study")
    report.add_argument(
        "--out", metavar="FOLDER", type=Path, help="output folder [default: report/NAME]"
    )
    claims = command("claims", "Check the papers' claims, and report which hold")
    claims.add_argument(
        "only", metavar="ONLY", nargs="*", help="claims, papers or studies: S0-08, S0, grc-2012"
    )
    claims.add_argument("--json", action="store_true", help="print JSON")
    claims.add_argument(
        "--accept", action="store_true", help="write the current verdicts to claims.toml"
    )
    figures = command("figures", "Draw a study's figures as SVG, PDF and PNG")
    figures.add_argument("name", metavar="NAME", help="the study")
    figures.add_argument("--only", metavar="FIGURE", action="append", help="only this one, like 8")
    figures.add_argument(
        "--out", metavar="FOLDER", type=Path, help="output folder [default: figures/NAME]"
    )
    figures.add_argument(
        "--format", action="append", choices=("svg", "pdf", "png", "xpl"),
        help="only this format; repeatable",
    )  # fmt: skip
    return parser


def _claims(words: argparse.Namespace, results: Sequence[Path]) -> int:
    from slowlight import checkout
    from slowlight.claims import catalogue, table

    entries = catalogue.chosen(catalogue.read(), words.only)
    checked = catalogue.check(entries, results)
    print(table.as_json(checked) if words.json else table.as_text(checked))
    if words.accept:
        place = checkout.file(catalogue.FILE)
        if place is None:
            raise UserError(f"no {catalogue.FILE} here; accept claims in a checkout")
        place.write_text(catalogue.with_held(place.read_text(), checked))
        return 0
    lost = [name for one in checked for name in one.lost]
    missing = sorted({one.missing for one in checked if one.missing})
    if lost:
        print(f"no longer hold: {', '.join(lost)}", file=sys.stderr)
    for made_by in missing:
        print(f"not run: {made_by}", file=sys.stderr)
    if lost:
        return 1
    return 2 if missing else 0


def _report(words: argparse.Namespace, results: Sequence[Path]) -> int:
    from slowlight import report

    out = words.out or Path("report") / Path(words.name).stem
    for path in report.write(words.name, results, out):
        print(path)
    return 0


def _figures(words: argparse.Namespace, results: Sequence[Path]) -> int:
    from slowlight import figures, report

    study = report.load(words.name, results)
    out = words.out or Path("figures") / Path(words.name).stem
    only = words.only or []
    specs = figures.of_study(study.text)
    known = [spec.figure or spec.name for spec in specs]
    for name in only:
        if name not in known:
            raise report.unknown("figure", name, known)
    status = 0
    for spec in specs:
        if only and (spec.figure or spec.name) not in only:
            continue
        if spec.edition not in study.editions:
            print(f"{spec.name}: edition {spec.edition} has no results", file=sys.stderr)
            continue
        endings = words.format or figures.WRITTEN
        try:
            written = figures.write(spec, study.editions[spec.edition], out, endings)
        except UserError as error:
            print(f"{spec.name}: not drawn: {error}", file=sys.stderr)
            status = 2
            continue
        for path in written:
            print(path)
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. 0: done; 1: a claim no longer holds; 2: wrong usage, or results or
    figures are missing.
    """
    words = _parser().parse_args(arguments)
    results = words.results or [Path()]
    run = {"claims": _claims, "report": _report, "figures": _figures}[words.command]
    try:
        return run(words, results)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
