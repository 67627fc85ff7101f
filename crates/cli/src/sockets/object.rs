//! Statistics as JSON.

/// JSON object with the named fields of structs, then further keys with their values:
///
/// ```text
/// object! {
///     counts => [segments_sent, segments_received];
///     "seconds": 1.5,
/// }
/// ```
macro_rules! object {
    ($($of:expr => [$($name:ident),+ $(,)?]),+; $($rest:tt)*) => {{
        let mut object = serde_json::json!({ $($rest)* });
        $($(object[stringify!($name)] = serde_json::json!($of.$name);)+)+
        object
    }};
}

pub(crate) use object;
