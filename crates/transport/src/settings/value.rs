//! Values of settings as TOML.

use std::time::Duration;

use serde::de::Unexpected;
use session::settings::{Base, Bound, Kind, Value};
use toml::Value as Toml;

use super::keys::Authentication;
use crate::quantity::{self, RATE, Rate, SIZE, SPAN, Size, Span};

/// Value of a kind with this text form. Key files are read.
///
/// # Errors
///
/// Reports the reason of the refusal. A message about a key below begins with a dot, and follows
/// the path of the value.
pub(super) fn read(kind: &Kind, given: &Toml) -> Result<Value, String> {
    if let Toml::String(word) = given
        && let Some(known) = kind.words.iter().find(|known| *known == word)
    {
        return Ok(Value::Word(known));
    }
    match &kind.base {
        None => Err(unknown_word(kind, given)),
        Some(Base::Named(name, base)) => match given {
            Toml::Table(table) if table.len() == 1 && table.contains_key(*name) => {
                let value = of_base(base, kind, &table[*name])?;
                Ok(Value::Named(name, Box::new(value)))
            }
            _ => Err(unknown_word(kind, given)),
        },
        Some(base) => of_base(base, kind, given),
    }
}

fn of_base(base: &Base, kind: &Kind, given: &Toml) -> Result<Value, String> {
    let wrong = || Err(unexpected(kind, base, given));
    let integer = |known: &dyn Fn(&u64) -> bool| {
        given.as_integer().and_then(|number| u64::try_from(number).ok()).filter(known)
    };
    match (base, given) {
        (Base::Flag, Toml::Boolean(flag)) => Ok(Value::Flag(*flag)),
        (Base::Number { least, most, .. }, Toml::Integer(_)) => {
            integer(&|number| (*least..=*most).contains(number))
                .map_or_else(wrong, |number| Ok(Value::Number(number)))
        }
        (Base::OneOf(known, what), Toml::Integer(number)) => {
            let found = integer(&|number| known.contains(number)).map(Value::Number);
            found.ok_or_else(|| format!("{what}, not {number}"))
        }
        (Base::Text | Base::File, Toml::String(text)) => Ok(Value::Text(text.clone())),
        (Base::Size, _) => {
            quantity(&SIZE, kind, given).map_or_else(wrong, |read| read.map(Value::Size))
        }
        (Base::Rate, _) => {
            quantity(&RATE, kind, given).map_or_else(wrong, |read| read.map(Value::Rate))
        }
        (Base::Span, _) => quantity(&SPAN, kind, given)
            .map_or_else(wrong, |read| read.map(|nanos| Value::Span(Duration::from_nanos(nanos)))),
        (Base::Numbers(expected), Toml::Table(table)) => numbers(table, expected),
        (Base::Keys, Toml::Table(table)) => {
            let keys: Result<Authentication, _> = table.clone().try_into();
            let keys = keys.map_err(|error: toml::de::Error| error.message().to_owned())?;
            keys.value().map(Value::Keys)
        }
        _ => wrong(),
    }
}

/// Quantity in its smallest unit; `None` for a value that is neither a text nor a number.
fn quantity(quantity: &quantity::Kind, kind: &Kind, given: &Toml) -> Option<Result<u64, String>> {
    let bare = |number: String| Some(Err(quantity.no_unit(&number).to_string()));
    match given {
        Toml::String(text) => Some(quantity.parse(text).map_err(|error| match &kind.words[..] {
            [] => error.to_string(),
            words => format!("{error}; or write {}", listed(words, '"')),
        })),
        Toml::Integer(number) => bare(number.to_string()),
        Toml::Float(number) => bare(number.to_string()),
        Toml::Boolean(_) | Toml::Datetime(_) | Toml::Array(_) | Toml::Table(_) => None,
    }
}

fn numbers(table: &toml::Table, expected: &str) -> Result<Value, String> {
    let entry = |(key, value): (&String, &Toml)| {
        let wrong = |why: &str| format!(".{key}: {why}");
        let number: u64 = key.parse().map_err(|_| wrong(expected))?;
        let shortest = number.to_string();
        if shortest != *key {
            return Err(wrong(&format!("write it as {shortest}")));
        }
        let value = value.as_integer().and_then(|value| u64::try_from(value).ok());
        Ok((number, value.ok_or_else(|| wrong("its value is a number"))?))
    };
    table.iter().map(entry).collect::<Result<_, String>>().map(Value::Numbers)
}

fn unknown_word(kind: &Kind, given: &Toml) -> String {
    let mut words = kind.words.clone();
    if let Some(Base::Named(name, _)) = &kind.base {
        words.push(name);
    }
    let expected = match words.len() {
        0..=2 => listed(&words, '`'),
        _ => format!("one of `{}`", words.join("`, `")),
    };
    let word = match given {
        Toml::String(word) => word,
        Toml::Table(table) if table.len() == 1 => table.keys().next().map_or("", String::as_str),
        _ => return format!("invalid type: {}, expected {expected}", shown(given)),
    };
    format!("unknown variant `{word}`, expected {expected}")
}

/// Words in quotes, as `"a", "b" or "c"`.
fn listed(words: &[&str], quote: char) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("{quote}{word}{quote}")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn unexpected(kind: &Kind, base: &Base, given: &Toml) -> String {
    let scalar = match base {
        Base::Flag => "a boolean".to_owned(),
        Base::Number { name, .. } => (*name).to_owned(),
        Base::OneOf(known, _) => format!("one of {known:?}"),
        Base::Text | Base::File => "a string".to_owned(),
        Base::Size => SIZE.expected(),
        Base::Span => SPAN.expected(),
        Base::Rate => RATE.expected(),
        Base::Numbers(_) => "a table of numbers".to_owned(),
        Base::Keys => "a table of keys".to_owned(),
        Base::Named(name, _) => format!("a table with `{name}`"),
    };
    let expected = match (&kind.words[..], given) {
        ([], _) => scalar,
        (words, Toml::Boolean(_)) if words.contains(&"off") => "a setting, or \"off\"".to_owned(),
        (words, _) => format!("{scalar}, or {}", listed(words, '"')),
    };
    let what = match (base, given) {
        (Base::Number { .. }, Toml::Integer(_)) => "invalid value",
        _ => "invalid type",
    };
    format!("{what}: {}, expected {expected}", shown(given))
}

fn shown(given: &Toml) -> Unexpected<'_> {
    match given {
        Toml::String(text) => Unexpected::Str(text),
        Toml::Integer(number) => Unexpected::Signed(*number),
        Toml::Float(number) => Unexpected::Float(*number),
        Toml::Boolean(flag) => Unexpected::Bool(*flag),
        Toml::Datetime(_) => Unexpected::Other("a date"),
        Toml::Array(_) => Unexpected::Seq,
        Toml::Table(_) => Unexpected::Map,
    }
}

/// Written form of a value; keys are not shown.
pub(super) fn write(value: &Value) -> Option<Toml> {
    let number = |number: u64| Toml::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    Some(match value {
        Value::Flag(flag) => Toml::Boolean(*flag),
        Value::Number(value) => number(*value),
        Value::Text(text) => Toml::String(text.clone()),
        Value::Size(bytes) => Toml::String(Size(*bytes).to_string()),
        Value::Span(span) => Toml::String(Span(*span).to_string()),
        Value::Rate(bps) => Toml::String(Rate(*bps).to_string()),
        Value::Word(word) => Toml::String((*word).to_owned()),
        Value::Named(name, value) => {
            Toml::Table([((*name).to_owned(), write(value)?)].into_iter().collect())
        }
        Value::Numbers(numbers) => {
            let entry = |(key, value): (&u64, &u64)| (key.to_string(), number(*value));
            Toml::Table(numbers.iter().map(entry).collect())
        }
        Value::Keys(_) => return None,
    })
}

/// Checks a value against its bound; the error follows the path of its key.
pub(super) fn check(bound: Bound, value: &Value) -> Result<(), String> {
    let least =
        |shown: String, least: String| Err(format!(" is {shown}; it must be at least {least}"));
    match (bound, value) {
        (Bound::Least(bound), Value::Size(bytes)) if *bytes < bound => {
            least(Size(*bytes).to_string(), Size(bound).to_string())
        }
        (Bound::Least(bound), Value::Number(number)) if *number < bound => {
            least(number.to_string(), bound.to_string())
        }
        (Bound::Most(bound), Value::Number(number)) if *number > bound => {
            Err(format!(" is {number}; it must be at most {bound}"))
        }
        (Bound::Range(from, to), Value::Number(number)) if !(from..=to).contains(number) => {
            Err(format!(" is {number}; it must be from {from} to {to}"))
        }
        (Bound::Range(from, to), Value::Size(bytes)) if !(from..=to).contains(bytes) => {
            let size = Size(*bytes);
            Err(format!(" is {size}; it must have {from} to {to} bytes"))
        }
        (Bound::Interval, Value::Span(span)) if *span < Bound::INTERVAL_MIN => {
            let (span, least) = (Span(*span), Span(Bound::INTERVAL_MIN));
            Err(format!(" is {span}; it must be at least {least}, or be left out"))
        }
        (Bound::Seconds, Value::Span(span)) if span.subsec_nanos() > 0 || span.as_secs() == 0 => {
            Err(" is whole seconds, 1 at least".to_owned())
        }
        _ => Ok(()),
    }
}
