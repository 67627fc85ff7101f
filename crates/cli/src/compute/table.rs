//! Tables for people: one line a row, laid out for the terminal.

use console::{Style, Term, measure_text_width};

/// Space at which lines do not break, as between a number and its unit.
pub(crate) const FIXED: &str = "\u{a0}";

/// Width of lines where standard output is no terminal.
const WIDTH: usize = 100;

/// Widths of a bar.
const BAR_MIN: usize = 12;
const BAR_MAX: usize = 24;

/// Indent of the lines of a command behind its first.
const CONTINUED: usize = 4;

/// Least width of prose.
const PROSE_MIN: usize = 24;

/// Shares from which on a bar is green, or yellow.
const GOOD: f64 = 0.9;
const FAIR: f64 = 0.5;

/// Place that a table is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Columns of characters.
    pub(crate) width: usize,
    /// Whether text has colours.
    pub(crate) has_colors: bool,
    /// Whether every column is drawn, however long the lines are.
    pub(crate) is_wide: bool,
}

impl Page {
    /// Standard output: as wide as the terminal, in colours unless `NO_COLOR` is set and not empty.
    pub(crate) fn stdout() -> Self {
        Self::for_terminal(&Term::stdout())
    }

    /// Standard error, likewise.
    #[cfg(feature = "emulate")]
    pub(crate) fn stderr() -> Self {
        Self::for_terminal(&Term::stderr())
    }

    fn for_terminal(terminal: &Term) -> Self {
        let has_colors = has_colors(terminal.is_term());
        let size = terminal.size_checked();
        let width = size.map(|(_, width)| usize::from(width)).filter(|width| *width > 0);
        Self { width: width.unwrap_or(WIDTH), has_colors, is_wide: false }
    }

    /// Page with every column, if it is wide.
    pub(crate) fn wide(self, is_wide: bool) -> Self {
        Self { is_wide, ..self }
    }

    /// Text with line breaks between words; a line after the first is indented like the first, and
    /// by two more.
    pub(crate) fn wrapped(self, text: &str) -> String {
        let indent = text.len() - text.trim_start_matches(' ').len();
        self.wrapped_by(text, indent + 2)
    }

    /// Text with line breaks between words, as a paragraph.
    pub(crate) fn paragraph(self, text: &str) -> String {
        self.wrapped_by(text, 0)
    }

    /// A shell command with line breaks between its arguments, each behind a backslash; an option
    /// and its value stay together.
    pub(crate) fn command(self, line: &str) -> String {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let mut lines = Vec::new();
        // The host that it is for stays as it is, aligned with others.
        let begin = line.find("slowlight ").unwrap_or(indent);
        let mut text = line[..begin].to_owned();
        for (number, argument) in arguments(&line[begin..]).into_iter().enumerate() {
            // The backslash and the space before it need room, too.
            let room = self.width.saturating_sub(2);
            let is_first = number == 0;
            if !is_first && measure_text_width(&text) + 1 + measure_text_width(&argument) > room {
                lines.push(text + " \\");
                text = " ".repeat(indent + CONTINUED);
            } else if !is_first {
                text.push(' ');
            }
            text += &argument;
        }
        lines.push(text);
        lines.join("\n")
    }

    fn wrapped_by(self, text: &str, indent: usize) -> String {
        let first = text.len() - text.trim_start_matches(' ').len();
        wrapped(text, first, indent, self.width).join("\n")
    }

    fn tinted(self, text: &str, tone: Tone) -> String {
        let style = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Dim => Style::new().dim(),
            Tone::Strong => Style::new().bold(),
            Tone::Good => Style::new().green(),
            Tone::Fair => Style::new().yellow(),
            Tone::Bad => Style::new().red(),
        };
        if self.has_colors && !text.is_empty() {
            style.force_styling(true).apply_to(text).to_string()
        } else {
            text.to_owned()
        }
    }
}

/// Whether text has colours: `CLICOLOR_FORCE` takes precedence over `NO_COLOR`, `CLICOLOR` and
/// `TERM`.
fn has_colors(is_terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    let is_able = set("TERM").is_some_and(|term| term != "dumb");
    let is_off = crate::is_colour_off() || set("CLICOLOR").is_some_and(|value| value == "0");
    is_terminal && is_able && !is_off
}

/// Lines of a text of at most this width, with indents of the first line and of the others. A word
/// that is longer is a line.
fn wrapped(text: &str, first: usize, indent: usize, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = " ".repeat(first);
    let mut is_empty = true;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !is_empty && measure_text_width(&line) + 1 + measure_text_width(word) > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines.iter().map(|line| line.replace(FIXED, " ")).collect()
}

/// Arguments of a command as it is written, with their quotes; an option has its value behind it.
fn arguments(command: &str) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut is_quoted = false;
    let words = command.split(|c: char| {
        is_quoted ^= c == '"';
        c == ' ' && !is_quoted
    });
    for word in words.filter(|word| !word.is_empty()) {
        match arguments.last_mut() {
            Some(last) if is_bare_option(last) && !word.starts_with("--") => {
                *last = format!("{last} {word}");
            }
            Some(_) | None => arguments.push(word.to_owned()),
        }
    }
    arguments
}

/// Whether this is an option without a value.
fn is_bare_option(text: &str) -> bool {
    text.starts_with("--") && !text.contains([' ', '='])
}

/// Emphasis of a cell, where there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Strong,
    Good,
    Fair,
    Bad,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Text.
    Text(String, Tone),
    /// A bar that is full at 1.
    Bar(f64),
    /// Nothing to show, printed as `-`.
    None,
}

impl Cell {
    /// Text, or nothing.
    pub(crate) fn optional(text: Option<String>) -> Self {
        text.map_or(Self::None, Self::from)
    }

    /// Cell with an emphasis.
    pub(crate) fn tone(self, tone: Tone) -> Self {
        match self {
            Self::Text(text, _) => Self::Text(text, tone),
            Self::Bar(_) | Self::None => self,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text, _) => text.is_empty(),
            Self::Bar(_) => false,
            Self::None => true,
        }
    }

    /// Text that is not stretched.
    fn text(&self) -> &str {
        match self {
            Self::Text(text, _) => text,
            Self::Bar(_) => "",
            Self::None => "-",
        }
    }

    fn drawn(&self, page: Page, width: usize) -> String {
        match self {
            Self::Text(text, tone) => page.tinted(text, *tone),
            Self::Bar(share) => bar(page, *share, width),
            Self::None => page.tinted("-", Tone::Dim),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into(), Tone::Plain)
    }
}

/// A bar of at most this width, in halves of a character.
fn bar(page: Page, share: f64, width: usize) -> String {
    let halves = (share.clamp(0.0, 1.0) * 2.0 * width as f64).round() as usize;
    let halves = if share > 0.0 { halves.max(1) } else { halves };
    let full = "━".repeat(halves / 2) + if halves % 2 == 1 { "╸" } else { "" };
    let tone = match share {
        share if share >= GOOD => Tone::Good,
        share if share >= FAIR => Tone::Fair,
        _ => Tone::Bad,
    };
    let rest = if page.has_colors { "─" } else { " " }.repeat(width - halves.div_ceil(2));
    let rest = page.tinted(&rest, Tone::Dim);
    page.tinted(&full, tone) + &rest
}

/// A column: its head, and what becomes of it where there is little room.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    head: String,
    is_right: bool,
    is_bar: bool,
    /// Whether it has lines below each other where there is little room.
    is_prose: bool,
    /// Whether it stands close to the one before it.
    is_close: bool,
    room: Room,
}

/// Room that a column needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    /// It is always drawn.
    Any,
    /// It is left out of lines that are too long, those with high numbers first.
    Spare(u8),
    /// It is drawn on wide pages.
    Wide,
}

impl Column {
    /// A column of words.
    pub(crate) fn left(head: impl Into<String>) -> Self {
        let head = head.into();
        let room = Room::Any;
        Self { head, is_right: false, is_bar: false, is_prose: false, is_close: false, room }
    }

    /// A column of text that may be long, the last of a table.
    pub(crate) fn prose(head: impl Into<String>) -> Self {
        Self { is_prose: true, ..Self::left(head) }
    }

    /// A column of numbers.
    pub(crate) fn right(head: impl Into<String>) -> Self {
        Self { is_right: true, ..Self::left(head) }
    }

    /// A column of bars, which takes the room that others leave.
    pub(crate) fn bar() -> Self {
        Self { is_bar: true, ..Self::left("") }
    }

    /// Column close to the one before it.
    pub(crate) fn close(self) -> Self {
        Self { is_close: true, ..self }
    }

    /// Column that is left out of lines that are too long; high numbers go first.
    pub(crate) fn spare(self, order: u8) -> Self {
        Self { room: Room::Spare(order), ..self }
    }

    /// Column for wide pages only.
    pub(crate) fn wide(self) -> Self {
        Self { room: Room::Wide, ..self }
    }
}

/// Rows of cells below the heads of columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row, a cell for each column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Lines of the table. Columns in which no row has anything are left out.
    pub(crate) fn drawn(&self, page: Page) -> String {
        let chosen = self.chosen(page);
        let spare = page.width.saturating_sub(self.least(&chosen));
        let width = |column: &usize| {
            if self.columns[*column].is_bar {
                BAR_MIN + spare.min(BAR_MAX - BAR_MIN)
            } else {
                self.width(*column)
            }
        };
        let columns: Vec<_> = chosen.iter().map(|column| (*column, width(column))).collect();
        let heads = columns.iter().map(|(column, width)| {
            let head = &self.columns[*column].head;
            (*column, *width, measure_text_width(head), page.tinted(head, Tone::Dim))
        });
        let mut lines = vec![self.line(heads)];
        let prose = chosen.last().filter(|column| self.columns[**column].is_prose);
        let indent = self.least(&chosen).saturating_sub(prose.map_or(0, |last| self.width(*last)));
        let room = page.width.saturating_sub(indent).max(PROSE_MIN);
        for row in &self.rows {
            let mut texts = prose
                .and_then(|last| row.get(*last))
                .map_or_else(Vec::new, |cell| wrapped(cell.text(), 0, 0, room));
            let more = texts.split_off(texts.len().min(1));
            let cells = columns.iter().filter_map(|(column, width)| {
                let cell = match (row.get(*column)?, texts.first()) {
                    (Cell::Text(_, tone), Some(line)) if Some(column) == prose => {
                        &Cell::Text(line.clone(), *tone)
                    }
                    (cell, _) => cell,
                };
                let len = if self.columns[*column].is_bar {
                    *width
                } else {
                    measure_text_width(cell.text())
                };
                Some((*column, *width, len, cell.drawn(page, *width)))
            });
            lines.push(self.line(cells));
            lines.extend(more.iter().map(|line| format!("{}{line}", " ".repeat(indent))));
        }
        lines.retain(|line| !line.is_empty());
        lines.join("\n")
    }

    /// One line of these cells: column, its width, width of the text, text.
    fn line(&self, cells: impl Iterator<Item = (usize, usize, usize, String)>) -> String {
        let mut line = String::new();
        for (at, (column, width, len, text)) in cells.enumerate() {
            let column = &self.columns[column];
            let gap = if at == 0 { 0 } else { 2 - usize::from(column.is_close) };
            let pad = " ".repeat(width.saturating_sub(len));
            line += &" ".repeat(gap);
            line += &if column.is_right { pad + &text } else { text + &pad };
        }
        line.truncate(line.trim_end().len());
        line
    }

    /// Columns that are drawn.
    fn chosen(&self, page: Page) -> Vec<usize> {
        let is_filled = |column: &usize| {
            self.rows.iter().filter_map(|row| row.get(*column)).any(|cell| !cell.is_empty())
        };
        let mut chosen: Vec<_> = (0..self.columns.len()).filter(is_filled).collect();
        if page.is_wide {
            return chosen;
        }
        chosen.retain(|column| self.columns[*column].room != Room::Wide);
        while self.least(&chosen) > page.width {
            let spare = chosen.iter().enumerate().filter_map(|(at, column)| {
                match self.columns[*column].room {
                    Room::Spare(order) => Some((order, at)),
                    Room::Any | Room::Wide => None,
                }
            });
            let Some((_, at)) = spare.max() else { break };
            chosen.remove(at);
        }
        chosen
    }

    /// Least width of lines with these columns.
    fn least(&self, chosen: &[usize]) -> usize {
        let gaps =
            chosen.iter().skip(1).map(|column| 2 - usize::from(self.columns[*column].is_close));
        chosen.iter().map(|column| self.width(*column)).chain(gaps).sum()
    }

    /// Width of a column; the least one of a bar.
    fn width(&self, column: usize) -> usize {
        if self.columns[column].is_bar {
            return BAR_MIN;
        }
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(Cell::text);
        let texts = cells.chain([self.columns[column].head.as_str()]);
        let width = texts.map(measure_text_width).max().unwrap_or(0);
        if self.columns[column].is_prose { width.min(PROSE_MIN) } else { width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: usize) -> Page {
        Page { width, has_colors: false, is_wide: false }
    }

    fn ranking() -> Table {
        let mut table = Table::new([
            Column::right(""),
            Column::left("protocol"),
            Column::right("delivered"),
            Column::left("").close(),
            Column::right("of bound"),
            Column::bar(),
            Column::right("ready").spare(1),
            Column::right("back").spare(2),
            Column::right("packets").wide(),
        ]);
        for (rank, name, time, error, share) in
            [("1", "saratoga", "8.93 s", "± 0.10 s", 0.962), ("2", "ftp", "31.24 s", "", 0.275)]
        {
            table.row([
                rank.into(),
                name.into(),
                time.into(),
                error.into(),
                format!("{:.1} %", 100.0 * share).into(),
                Cell::Bar(share),
                Cell::None,
                "1.9 kB".into(),
                "7".into(),
            ]);
        }
        table
    }

    #[test]
    fn a_row_is_a_line_and_empty_columns_are_left_out() {
        let expected = [
            "   protocol  delivered           of bound                              back",
            "1  saratoga     8.93 s ± 0.10 s    96.2 %  ━━━━━━━━━━━━━━━━━━━━━━━   1.9 kB",
            "2  ftp         31.24 s             27.5 %  ━━━━━━╸                   1.9 kB",
        ];
        assert_eq!(ranking().drawn(page(80)), expected.join("\n"));
        assert!(ranking().drawn(page(80).wide(true)).contains("packets"));
    }

    #[test]
    fn what_does_not_fit_is_left_out_last_first() {
        let text = ranking().drawn(page(60));
        assert!(!text.contains("back") && text.contains("━━━━━━━"), "{text}");
        assert!(text.lines().all(|line| measure_text_width(line) <= 60), "{text}");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let coloured = ranking().drawn(Page { has_colors: true, ..page(80) });
        assert!(coloured.contains("\u{1b}[32m"), "{coloured:?}");
        let plain = console::strip_ansi_codes(&coloured).replace('─', " ");
        let lines: Vec<_> = plain.lines().map(str::trim_end).collect();
        assert_eq!(lines.join("\n"), ranking().drawn(page(80)));
    }

    #[test]
    fn prose_has_lines_below_each_other() {
        let mut table = Table::new([Column::left("axis"), Column::prose("values")]);
        table.row(["per".into(), "one two three four five six seven".into()]);
        let expected = "axis  values\nper   one two three four five\n      six seven";
        assert_eq!(table.drawn(page(30)), expected);
    }

    #[test]
    fn commands_break_at_arguments() {
        let line =
            "  sender:  slowlight send FILE HOST:1 --rate \"2 Mbit/s\" --quiet --delay \"1 s\"";
        let expected = "  sender:  slowlight send FILE \\\n      HOST:1 --rate \"2 Mbit/s\" \\\n      \
                        --quiet --delay \"1 s\"";
        assert_eq!(page(35).command(line), expected);
        assert_eq!(page(200).command(line), line);
        // What a shell makes of the lines is the command.
        let joined = page(35).command(line).replace(" \\\n", " ");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&joined), words(line));
    }

    #[test]
    fn words_wrap_below_their_indent() {
        assert_eq!(page(12).wrapped("  there: one two three"), "  there: one\n    two\n    three");
        assert_eq!(page(11).wrapped("a: one 10\u{a0}ms"), "a: one\n  10 ms");
        assert_eq!(page(12).paragraph("one two three four"), "one two\nthree four");
    }
}
