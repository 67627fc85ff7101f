//! Forms in which users write the values of settings.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use super::{Base, Field, Kind, Optional, Peers, Setting, Settings, Value, Visited, Visitor};
use crate::authentication::Authentication;
use crate::timer;

/// Form of a field of type `T`, one value ([`OneValue`]) or many ([`Many`]).
pub trait Form<T, M> {
    /// Visits the field.
    ///
    /// # Errors
    ///
    /// The visitor stops.
    fn visit(field: &Field, place: &mut T, visitor: &mut dyn Visitor) -> Visited;
}

/// Marker of forms of one value.
#[derive(Debug)]
pub struct OneValue;

/// Marker of forms of many values.
#[derive(Debug)]
pub struct Many;

/// Form of a field with one value.
pub trait Leaf<T> {
    /// Kind of the values.
    fn kind() -> Kind;

    /// Value of a field; `None` if it is equivalent to leaving the key out.
    fn get(place: &T) -> Option<Value>;

    /// Sets a field to a value of the kind.
    ///
    /// # Errors
    ///
    /// Rest of a message that begins with the key.
    fn set(place: &mut T, value: Value) -> Result<(), String>;
}

struct Slot<'a, T, F>(&'a mut T, PhantomData<F>);

impl<T, F: Leaf<T>> Setting for Slot<'_, T, F> {
    fn kind(&self) -> Kind {
        F::kind()
    }

    fn get(&self) -> Option<Value> {
        F::get(self.0)
    }

    fn set(&mut self, value: Value) -> Result<(), String> {
        F::set(self.0, value)
    }
}

impl<T, F: Leaf<T>> Form<T, OneValue> for F {
    fn visit(field: &Field, place: &mut T, visitor: &mut dyn Visitor) -> Visited {
        visitor.value(field, &mut Slot::<T, F>(place, PhantomData))
    }
}

/// Visits a setting that has no effect without a `place`; `why` follows its key in the message to
/// users that set it.
///
/// # Errors
///
/// The visitor stops.
pub fn visit_if<F: Leaf<T>, T>(
    field: &Field,
    place: Option<&mut T>,
    why: &'static str,
    visitor: &mut dyn Visitor,
) -> Visited {
    match place {
        Some(place) => visitor.value(field, &mut Slot::<T, F>(place, PhantomData)),
        None => visitor.value(field, &mut Refused { kind: F::kind(), why }),
    }
}

/// Visitor of a table whose settings have no effect; `why` follows their keys in the message to
/// users that set them.
#[expect(missing_debug_implementations, reason = "visitors are no values")]
pub struct Refusal<'a> {
    visitor: &'a mut dyn Visitor,
    why: &'static str,
}

impl<'a> Refusal<'a> {
    /// A visitor that passes settings without effect to `visitor`.
    pub fn new(visitor: &'a mut dyn Visitor, why: &'static str) -> Self {
        Self { visitor, why }
    }
}

impl Visitor for Refusal<'_> {
    fn value(&mut self, field: &Field, setting: &mut dyn Setting) -> Visited {
        self.visitor.value(field, &mut Refused { kind: setting.kind(), why: self.why })
    }

    fn table(&mut self, field: &Field, table: &mut dyn Settings) -> Visited {
        self.visitor.absent(field, table, self.why)
    }

    fn optional(&mut self, field: &Field, table: &mut dyn Optional) -> Visited {
        self.visitor.absent_optional(field, table, self.why)
    }

    fn absent(&mut self, field: &Field, table: &mut dyn Settings, why: &str) -> Visited {
        self.visitor.absent(field, table, why)
    }

    fn absent_optional(&mut self, field: &Field, table: &mut dyn Optional, why: &str) -> Visited {
        self.visitor.absent_optional(field, table, why)
    }

    fn peers(&mut self, _: &mut dyn Peers) -> Visited {
        Ok(())
    }
}

struct Refused {
    kind: Kind,
    why: &'static str,
}

impl Setting for Refused {
    fn kind(&self) -> Kind {
        self.kind.clone()
    }

    fn get(&self) -> Option<Value> {
        None
    }

    fn set(&mut self, _: Value) -> Result<(), String> {
        Err(self.why.to_owned())
    }
}

/// Visits the settings of a part that are placed in the table around it; `why` follows their keys
/// in the message to users that set them without the part.
///
/// # Errors
///
/// The visitor stops.
pub fn visit_part<T: Settings + Default>(
    part: &mut Option<T>,
    why: &'static str,
    visitor: &mut dyn Visitor,
) -> Visited {
    match part {
        Some(part) => part.visit(visitor),
        None => T::default().visit(&mut Refusal::new(visitor, why)),
    }
}

/// Error of a value of another kind; drivers pass none.
pub fn foreign<T>(value: &Value) -> Result<T, String> {
    Err(format!(" has no value like {value:?}"))
}

/// Declares forms whose fields have the values unchanged.
macro_rules! plain {
    ($($(#[$about:meta])* $form:ident($type:ty);)+) => {$(
        $(#[$about])*
        #[derive(Debug)]
        pub struct $form;

        impl Leaf<$type> for $form {
            fn kind() -> Kind {
                Base::$form.into()
            }

            fn get(place: &$type) -> Option<Value> {
                Some(Value::$form(place.to_owned()))
            }

            fn set(place: &mut $type, value: Value) -> Result<(), String> {
                let Value::$form(given) = value else { return foreign(&value) };
                *place = given;
                Ok(())
            }
        }
    )+};
}

plain! {
    /// Yes or no.
    Flag(bool);
    /// Any text.
    Text(String);
    /// A time.
    Span(Duration);
    /// Rate in bit/s.
    Rate(u64);
}

/// A number without unit.
#[derive(Debug)]
pub struct Number;

/// Bytes.
#[derive(Debug)]
pub struct Size;

/// Declares a form of integers; the kind of its values depends on the greatest number and on the
/// name of the type.
macro_rules! integers {
    ($form:ident, $kind:expr; $($type:ty),+) => {$(
        impl Leaf<$type> for $form {
            fn kind() -> Kind {
                let kind: fn(u64, &'static str) -> Base = $kind;
                kind(<$type>::MAX as u64, stringify!($type)).into()
            }

            fn get(place: &$type) -> Option<Value> {
                Some(Value::$form(*place as u64))
            }

            fn set(place: &mut $type, value: Value) -> Result<(), String> {
                let Value::$form(given) = value else { return foreign(&value) };
                *place = <$type>::try_from(given).unwrap_or(<$type>::MAX);
                Ok(())
            }
        }
    )+};
}

integers!(Number, |most, name| Base::Number { least: 0, most, name }; u8, u16, u32, u64, usize);
integers!(Size, |_, _| Base::Size; u8, u16, u32, u64, usize);

/// A share of at most one, as `0.1` or `10 %`.
#[derive(Debug)]
pub struct Share;

impl Share {
    /// Reads a share.
    ///
    /// # Errors
    ///
    /// Rest of a message that begins with the key.
    pub fn parse(text: &str) -> Result<f64, String> {
        let (digits, unit) = match text.trim().strip_suffix('%') {
            Some(percent) => (percent.trim(), 0.01),
            None => (text.trim(), 1.0),
        };
        let share = digits.parse::<f64>().ok().map(|share| share * unit);
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        share.ok_or_else(|| {
            format!(" is a share of at most one, as \"0.1\" or \"10 %\", not {text:?}")
        })
    }
}

impl Leaf<f64> for Share {
    fn kind() -> Kind {
        Base::Text.into()
    }

    fn get(place: &f64) -> Option<Value> {
        Some(Value::Text(place.to_string()))
    }

    fn set(place: &mut f64, value: Value) -> Result<(), String> {
        let Value::Text(text) = value else { return foreign(&value) };
        *place = Self::parse(&text)?;
        Ok(())
    }
}

/// A value, or `off` for `None`.
#[derive(Debug)]
pub struct Off<F>(PhantomData<F>);

/// The word for `None`.
pub const OFF: &str = "off";

/// Declares forms of a value, or of a word for `None`.
macro_rules! worded {
    ($($form:ident, $word:expr;)+) => {$(
        impl<T: Default, F: Leaf<T>> Leaf<Option<T>> for $form<F> {
            fn kind() -> Kind {
                F::kind().or($word)
            }

            fn get(place: &Option<T>) -> Option<Value> {
                place.as_ref().map_or(Some(Value::Word($word)), F::get)
            }

            fn set(place: &mut Option<T>, value: Value) -> Result<(), String> {
                if value == Value::Word($word) {
                    *place = None;
                    return Ok(());
                }
                F::set(place.get_or_insert_default(), value)
            }
        }
    )+};
}

worded! {
    Off, OFF;
    Auto, AUTO;
}

/// 0 is `off`.
impl Leaf<u32> for Off<Number> {
    fn kind() -> Kind {
        <Number as Leaf<u32>>::kind().or(OFF)
    }

    fn get(place: &u32) -> Option<Value> {
        Some(if *place == 0 { Value::Word(OFF) } else { Value::Number((*place).into()) })
    }

    fn set(place: &mut u32, value: Value) -> Result<(), String> {
        if value == Value::Word(OFF) {
            *place = 0;
            return Ok(());
        }
        Number::set(place, value)
    }
}

/// A value; `None` is written by leaving the key out.
#[derive(Debug)]
pub struct Maybe<F>(PhantomData<F>);

impl<T: Default, F: Leaf<T>> Leaf<Option<T>> for Maybe<F> {
    fn kind() -> Kind {
        F::kind()
    }

    fn get(place: &Option<T>) -> Option<Value> {
        place.as_ref().and_then(F::get)
    }

    fn set(place: &mut Option<T>, value: Value) -> Result<(), String> {
        F::set(place.get_or_insert_default(), value)
    }
}

/// A value, or `auto` for one that is estimated.
#[derive(Debug)]
pub struct Auto<F>(PhantomData<F>);

const AUTO: &str = "auto";

impl Leaf<timer::Timer> for Auto<Span> {
    fn kind() -> Kind {
        Kind::from(Base::Span).or(AUTO)
    }

    fn get(place: &timer::Timer) -> Option<Value> {
        Some(match place {
            timer::Timer::Auto => Value::Word(AUTO),
            timer::Timer::Fixed(span) => Value::Span(*span),
        })
    }

    fn set(place: &mut timer::Timer, value: Value) -> Result<(), String> {
        *place = match value {
            Value::Word(_) => timer::Timer::Auto,
            Value::Span(span) => timer::Timer::Fixed(span),
            other => return foreign(&other),
        };
        Ok(())
    }
}

/// A value of an enum, by a word.
#[derive(Debug)]
pub struct Word;

/// Words for the values of an enum.
pub trait Words: Sized {
    /// The words with their values.
    fn words() -> Vec<(&'static str, Self)>;
}

/// The word for a value, if there is one.
pub(crate) fn word_of<T: Words + PartialEq>(value: &T) -> Option<&'static str> {
    T::words().into_iter().find(|(_, other)| other == value).map(|(word, _)| word)
}

/// Value for a word.
pub fn value_of<T: Words>(word: &str) -> Option<T> {
    T::words().into_iter().find(|(other, _)| *other == word).map(|(_, value)| value)
}

impl<T: Words + PartialEq> Leaf<T> for Word {
    fn kind() -> Kind {
        Kind { base: None, words: T::words().into_iter().map(|(word, _)| word).collect() }
    }

    fn get(place: &T) -> Option<Value> {
        word_of(place).map(Value::Word)
    }

    fn set(place: &mut T, value: Value) -> Result<(), String> {
        let Value::Word(word) = value else { return foreign(&value) };
        let Some(known) = value_of(word) else { return foreign(&value) };
        *place = known;
        Ok(())
    }
}

/// A value of an enum, by a number.
#[derive(Debug)]
pub struct Numbered;

/// Numbers for the values of an enum.
pub trait Numbers: Copy + PartialEq + 'static {
    /// Start of the message about other numbers.
    const WHAT: &'static str;
    /// The numbers with their values.
    const NUMBERS: &'static [(u64, Self)];
    /// The numbers.
    const KNOWN: &'static [u64];
}

impl<T: Numbers> Leaf<T> for Numbered {
    fn kind() -> Kind {
        Base::OneOf(T::KNOWN, T::WHAT).into()
    }

    fn get(place: &T) -> Option<Value> {
        let known = T::NUMBERS.iter().find(|(_, value)| value == place);
        known.map(|(number, _)| Value::Number(*number))
    }

    fn set(place: &mut T, value: Value) -> Result<(), String> {
        let known = T::NUMBERS.iter().find(|(number, _)| value == Value::Number(*number));
        let Some((_, known)) = known else { return foreign(&value) };
        *place = *known;
        Ok(())
    }
}

/// A number of at least 1.
#[derive(Debug)]
pub struct Positive;

impl Leaf<u32> for Positive {
    fn kind() -> Kind {
        Base::Number { least: 1, most: u32::MAX.into(), name: "a nonzero u32" }.into()
    }

    fn get(place: &u32) -> Option<Value> {
        Number::get(place)
    }

    fn set(place: &mut u32, value: Value) -> Result<(), String> {
        Number::set(place, value)
    }
}

/// Map of numbers: nodes reached via others. New entries are added to the existing ones.
#[derive(Debug)]
pub struct Routes;

impl Leaf<BTreeMap<u64, u64>> for Routes {
    fn kind() -> Kind {
        Base::Numbers("a remote entity has a number").into()
    }

    fn get(place: &BTreeMap<u64, u64>) -> Option<Value> {
        (!place.is_empty()).then(|| Value::Numbers(place.clone()))
    }

    fn set(place: &mut BTreeMap<u64, u64>, value: Value) -> Result<(), String> {
        let Value::Numbers(numbers) = value else { return foreign(&value) };
        place.extend(numbers);
        Ok(())
    }
}

/// Keys of LTP. They are never read back.
#[derive(Debug)]
pub struct Keys;

impl Leaf<Option<Authentication>> for Keys {
    fn kind() -> Kind {
        Kind::from(Base::Keys).or(OFF)
    }

    fn get(_: &Option<Authentication>) -> Option<Value> {
        None
    }

    fn set(place: &mut Option<Authentication>, value: Value) -> Result<(), String> {
        *place = match value {
            Value::Word(_) => None,
            Value::Keys(keys) => Some(keys),
            other => return foreign(&other),
        };
        Ok(())
    }
}

/// A table of settings.
#[derive(Debug)]
pub struct Table;

impl<T: Settings> Form<T, Many> for Table {
    fn visit(field: &Field, place: &mut T, visitor: &mut dyn Visitor) -> Visited {
        visitor.table(field, place)
    }
}

impl<T: Settings + Default> Form<Option<T>, Many> for Off<Table> {
    fn visit(field: &Field, place: &mut Option<T>, visitor: &mut dyn Visitor) -> Visited {
        visitor.optional(field, place)
    }
}

impl<T: Settings + Default> Optional for Option<T> {
    fn on(&mut self) -> &mut dyn Settings {
        self.get_or_insert_default()
    }

    fn off(&mut self) {
        *self = None;
    }

    fn is_on(&self) -> bool {
        self.is_some()
    }
}

/// Settings placed in the table around them.
#[derive(Debug)]
pub struct Inline;

impl<T: Settings> Form<T, Many> for Inline {
    fn visit(_: &Field, place: &mut T, visitor: &mut dyn Visitor) -> Visited {
        place.visit(visitor)
    }
}

crate::words!(wire::checksum::ChecksumType {
    "modular" = Self::Modular,
    "proximity1" = Self::Proximity1Crc32,
    "crc32c" = Self::Crc32c,
    "crc32" = Self::Crc32,
    "null" = Self::Null,
});
