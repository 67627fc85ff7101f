"""Writes the tables of settings in docs/*.md from their declarations.

.ci/settings.py            writes the tables
.ci/settings.py --check    fails if they are not what they would be

A table stands between `<!-- settings: FILE STRUCT -->` and `<!-- end of settings -->`, where FILE
is below crates (`ltp/config.rs` is crates/ltp/src/config.rs) and STRUCT is declared there by the
macro `settings!`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES = ROOT / "crates"
MARKED = re.compile(r"(<!-- settings: (\S+) (\w+) -->\n).*?(<!-- end of settings -->)", re.DOTALL)
FIELD = re.compile(
    r"((?:/// ?[^\n]*\n)+)pub (\w+)(?:\(\"(\w+)\"\))?: (.+?)"
    r"(?: as ([\w<>]+)(?: \[(.+?)\])?)? =\s+(.+?),\n(?=///|\Z)",
    re.DOTALL,
)
VISITED = re.compile(r"((?:\s*/// ?[^\n]*\n)+)\s*\"(\w+)\": [\w.()*]+ as ([\w<>]+)(?: \[(.+?)\])?,")
SIZES = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
TIMES = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")]
FORMS = {
    "Flag": "true, false",
    "Number": "number",
    "Positive": "number, at least 1",
    "Size": "size",
    "Span": "time",
    "Rate": "rate",
    "Text": "text",
    "WidthForm": "number",
    "Keys": 'a table of keys, or `"off"`',
    "Routes": "a table of numbers",
    "BeaconInterval": "time, at least 1 ms",
    "FormatForm": '`"described"` or `{ raw = "NAME" }`',
    "NakModeForm": '`"immediate"`, `"deferred"`, `"prompted"` or a time',
    "PrimaryCrc": '`"crc-16"`, `"crc-32c"`',
    "Most": "size",
    "WholeSeconds": 'time in whole seconds, or `"off"`',
    "ColorForm": '`"as-asked"`, `"red"`, `"green"` or `{ mixed = SIZE }`',
    "Growth": '`"linux"` or `"unlimited"`',
    "Segments": 'number, at least 1, or `"off"`',
    "ByForm": '`"short"`, `"bits"` or `"off"`',
    "Share": 'share, as `"0.1"` or `"10 %"`',
    "WasteForm": 'share, or `"round-trip"`',
    "ByRate": 'rate, `"interface"` or `"off"`',
}
# Structs whose settings are part of the enclosing table.
INLINE = {"Buffers": "session/buffers.rs"}
# Optional parts of structs whose settings are part of the enclosing table.
PARTS = {"Scps": (("tcp/scps/snack.rs", "Snack"), ("tcp/scps/rate.rs", "RateControl"))}
BOUNDED = {"Interval": ", at least 1 ms", "Seconds": ", whole seconds"}


def source_of(path: str) -> Path:
    """The file `CRATE/FILE` in the sources of a crate."""
    crate, _, file = path.partition("/")
    return CRATES / crate / "src" / file


@dataclass
class Setting:
    """A setting as it is declared."""

    key: str
    doc: str
    type: str
    form: str
    bound: str
    default: str


def declared(path: str, struct: str) -> list[Setting]:
    """The settings of a struct."""
    source = source_of(path).read_text(encoding="utf-8")
    found = re.search(rf"pub struct {struct}( \[[^\]]*\])? \{{\n(.*?)\n    \}}", source, re.DOTALL)
    if found is None:
        sys.exit(f"{path} declares no settings {struct}")
    body = "\n".join(line.strip() for line in found[2].splitlines()) + "\n"
    settings = []
    for comment, name, key, kind, form, bound, default in FIELD.findall(body):
        if form == "Inline":
            settings += declared(INLINE.get(kind, path), kind)
        elif form == "BuffersForm":
            settings += visited(source)
        elif form and form not in ("Table", "Off<Table>"):
            doc = " ".join(line.removeprefix("///").strip() for line in comment.splitlines())
            settings.append(Setting(key or name, doc, kind, form, bound, default))
    if "more:" in (found[1] or ""):
        settings += visited(source)
    for part in PARTS.get(struct, ()):
        settings += declared(*part)
    return settings


def visited(source: str) -> list[Setting]:
    """Returns the settings that a file visits by itself, with the defaults of all buffers."""
    buffers = {setting.key: setting.default for setting in declared(INLINE["Buffers"], "Buffers")}
    settings = []
    for comment, key, form, bound in VISITED.findall(source):
        doc = " ".join(line.strip().removeprefix("///").strip() for line in comment.splitlines())
        settings.append(Setting(key, doc.strip(), "usize", form, bound, buffers.get(key, "None")))
    return settings


def named(path: str, kind: str) -> str:
    """The macro `words!` or `numbers!` of an enum, from the file or others of its protocol."""
    protocol = (CRATES / path.split("/")[0]).rglob("src/**/*.rs")
    shared = source_of("session/settings/form.rs")
    for file in (source_of(path), shared, *sorted(protocol)):
        source = file.read_text(encoding="utf-8")
        pattern = rf"(?:words|numbers)!\((?:\w+::)*{kind}\b[^;]*?\{{(.*?)\}}\);"
        if macro := re.search(pattern, source, re.DOTALL):
            return macro[1]
    return ""


def names(path: str, kind: str) -> list[str]:
    """The names of an enum's values."""
    return [name for name, _ in re.findall(r"(\"[\w-]+\"|\d+) = (\w+::\w+)", named(path, kind))]


def name_of(path: str, kind: str, value: str) -> str:
    """The name of one of them."""
    variant = re.escape(value.split("::")[-1])
    found = re.search(rf"(\"[\w-]+\"|\d+) = \w+::{variant}\b", named(path, kind))
    return found[1] if found else ""


def number(path: str, text: str) -> int:
    """The value of an expression: literals, shifts and constants of the file."""
    source = source_of(path).read_text(encoding="utf-8")
    others = (source_of("session/buffers.rs"), source_of("engine/path.rs"))
    files = "\n".join([source, *(other.read_text(encoding="utf-8") for other in others)])
    while constant := re.search(r"[A-Z][A-Z_]+", text):
        value = re.search(rf"const {constant[0]}: \w+ = ([^;]+);", files)
        text = text.replace(constant[0], value[1] if value else "0")
        text = re.sub(r"\w+::| as \w+", "", text)
    if not re.fullmatch(r"[\d_<>*+ ()]+", text):
        sys.exit(f"{path}: {text} is no number")
    return int(eval(text.replace("_", ""), {"__builtins__": {}}))


def size(value: int) -> str:
    """A size as slowlight prints it."""
    for unit, name in SIZES:
        if value and value % 1000 and value % unit == 0:
            return f"{value // unit} {name}"
    return f"{value} B" if value % 1000 or not value else f"{value // 1000} kB"


def span(path: str, text: str) -> str:
    """A time as slowlight prints it."""
    source = source_of(path).read_text(encoding="utf-8")
    if found := re.fullmatch(r"[A-Z_]+", text):
        constant = re.search(rf"const {found[0]}: Duration = ([^;]+);", source)
        text = constant[1] if constant else text
    if text == "Duration::ZERO":
        return "0 s"
    if micros := re.fullmatch(r"Duration::from_micros\((.*)\)", text):
        return f"{number(path, micros[1]) / 1e6} s"
    made = re.fullmatch(r"Duration::from_(secs|millis)\((.*)\)", text)
    if made is None:
        return text
    millis = number(path, made[2]) * (1000 if made[1] == "secs" else 1)
    return next(f"{millis // unit} {name}" for unit, name in TIMES if millis % unit == 0)


def default(path: str, setting: Setting) -> str:
    """Returns the default as written in TOML; a dash if it cannot be written."""
    form, text = setting.form, setting.default
    inner = re.sub(r"^Option<(.*)>$", r"\1", setting.type)
    if some := re.fullmatch(r"Some\((.*)\)", text):
        text = some[1]
    if form in ("Keys", "Routes") or (text == "None" and not form.startswith(("Off", "Auto"))):
        return '`"off"`' if form in ("BeaconInterval", "ByForm", "ByRate") else "—"
    if text == "None":
        return '`"off"`' if form.startswith("Off") else '`"auto"`'
    leaf = re.sub(r"\w+<|>", "", form)
    if text == "Timer::Auto":
        value = '"auto"'
    elif name := name_of(path, inner, text):
        value = name
    elif leaf == "Size":
        value = f'"{size(number(path, text))}"'
    elif leaf == "Span":
        value = f'"{span(path, text)}"'
    elif leaf == "Number":
        value = str(number(path, text))
    elif leaf == "Text":
        value = '""'
    elif leaf == "Flag":
        value = text
    elif leaf == "WholeSeconds":
        value = f'"{text} s"'
    else:
        others = {
            "Width::TWO": "2",
            "NakMode::Deferred": '"deferred"',
            "Format::Described": '"described"',
            "InitialWindow::Segments(10)": "10",
            "Algorithm::Cubic(Cubic::LINUX)": '"cubic"',
            "Some(Snack::default())": '"short"',
            "Color::AsAsked": '"as-asked"',
            "Checks::default()": '"crc-32c"',
            "Waste::Share(0.01)": '"0.01"',
            "0.01": '"0.01"',
            "u64::MAX": '"off"',
            "Snack::default()": '"short"',
        }
        value = others.get(text, "")
    return f"`{value}`" if value else "—"


def values(path: str, setting: Setting) -> str:
    """Returns the possible values of a setting."""
    form, words = setting.form, ""
    for wrapper, word in (("Off", '`"off"`'), ("Auto", '`"auto"`'), ("Maybe", "")):
        if inside := re.fullmatch(rf"{wrapper}<(.*)>", form):
            form = inside[1]
            words = " or ".join(filter(None, (words, word)))
    if inside := re.fullmatch(r"Auto<(.*)>", form):
        form, words = inside[1], '`"auto"` or `"off"`'
    if form in ("Initial", "Unbounded"):
        form, words = "Most", '`"off"`'
    inner = re.sub(r"^Option<(.*)>$", r"\1", setting.type)
    if form in ("Word", "Numbered"):
        listed = [f"`{name}`" for name in names(path, inner)] or ["word"]
        text = ", ".join(listed)
    else:
        text = FORMS[form]
    bound = re.fullmatch(r"(Least|Most|Range)\((.*)\)", setting.bound)
    if bound and form != "Segments":
        least = [number(path, part) for part in bound[2].split(", ")]
        shown = [size(value) if form in ("Size", "Most") else f"{value:,}" for value in least]
        text += {
            "Least": ", at least {}",
            "Most": ", at most {}",
            "Range": " from {} to {}",
        }[bound[1]].format(*shown)
    elif setting.bound and form not in ("NakModeForm", "BeaconInterval", "Segments"):
        text += BOUNDED[setting.bound]
    return f"{text}, or {words}" if words else text


def first_sentence(doc: str) -> str:
    """The first sentence of documentation, without links and the full stop."""
    sentence = re.split(r"\.(?:\s|$)", doc)[0]
    return re.sub(r"\[`(?:\w+::)*(\w+)`\]", r"`\1`", sentence).replace("|", "\\|")


def table(path: str, struct: str) -> str:
    """The table of a struct's settings."""
    lines = ["| key | value | default | what it sets |", "|---|---|---|---|"]
    for setting in declared(path, struct):
        home = INLINE.get("Buffers") if setting in declared(INLINE["Buffers"], "Buffers") else path
        cells = (f"`{setting.key}`", values(home or path, setting), default(home or path, setting))
        lines.append(f"| {' | '.join(cells)} | {first_sentence(setting.doc)} |")
    return "\n" + "\n".join(lines) + "\n\n"


def main(arguments: list[str]) -> int:
    """The command."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        written = MARKED.sub(lambda mark: mark[1] + table(mark[2], mark[3]) + mark[4], text)
        if written == text:
            continue
        if arguments:
            stale += 1
            print(f"{page.name} has stale settings; run .ci/settings.py", file=sys.stderr)
        else:
            page.write_text(written, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
