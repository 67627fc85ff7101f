//! Form of the settings that are widths of fields.

use session::settings::form::{Leaf, Number, foreign};
use session::settings::{Kind, Value};

use crate::pdu::Width;

/// Width of a field of CFDP, from 1 to 8 bytes.
#[derive(Debug)]
pub(crate) struct WidthForm;

impl Leaf<Width> for WidthForm {
    fn kind() -> Kind {
        <Number as Leaf<u8>>::kind()
    }

    fn get(place: &Width) -> Option<Value> {
        Some(Value::Number(place.bytes() as u64))
    }

    fn set(place: &mut Width, value: Value) -> Result<(), String> {
        let Value::Number(bytes) = value else { return foreign(&value) };
        let width = u8::try_from(bytes).ok().and_then(Width::new);
        *place = width.ok_or_else(|| format!(" is {bytes}; it must be from 1 to 8"))?;
        Ok(())
    }
}

impl Leaf<Option<Width>> for WidthForm {
    fn kind() -> Kind {
        <Number as Leaf<u8>>::kind()
    }

    fn get(place: &Option<Width>) -> Option<Value> {
        place.as_ref().and_then(Self::get)
    }

    fn set(place: &mut Option<Width>, value: Value) -> Result<(), String> {
        Self::set(place.get_or_insert(Width::ONE), value)
    }
}
