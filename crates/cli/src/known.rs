//! Names that shells complete for options that take other values too, such as files.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::Error;

/// Parser that reads any value of its kind, and proposes the known names to shells.
///
/// Options that use it hide the names in `--help`, which says which command lists them.
#[derive(Clone, Debug)]
pub(crate) struct Known<P> {
    parser: P,
    names: fn() -> Vec<&'static str>,
}

impl<P: TypedValueParser> TypedValueParser for Known<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &clap::Command,
        option: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Self::Value, Error> {
        self.parser.parse_ref(command, option, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

/// Links: names of `slowlight links`, or files.
#[cfg(feature = "compute")]
pub(crate) fn link() -> impl TypedValueParser<Value = String> {
    let names = || lab::preset::ALL.iter().map(|(name, _)| *name).collect();
    Known { parser: clap::builder::StringValueParser::new(), names }
}

/// Studies: names of `slowlight study list`, or files.
#[cfg(feature = "emulate")]
pub(crate) fn study() -> impl TypedValueParser<Value = String> {
    let names = || testbed::study::BUILT_IN.iter().map(|(name, _)| *name).collect();
    Known { parser: clap::builder::StringValueParser::new(), names }
}

/// Protocols: short names, with or without a profile, or stacks.
#[cfg(feature = "compute")]
pub(crate) fn protocol() -> impl TypedValueParser<Value = transport::protocol::Protocol> {
    use transport::protocol::Kind;

    Known { parser: read_protocol, names: || Kind::all().map(Kind::name).collect() }
}

/// Protocols that run over sockets: short names, with or without a profile, or stacks.
#[cfg(feature = "sockets")]
pub(crate) fn socket_protocol() -> impl TypedValueParser<Value = transport::protocol::Protocol> {
    use transport::protocol::Kind;

    let names = || Kind::all().filter(|kind| kind.has_sockets()).map(Kind::name).collect();
    Known { parser: read_protocol, names }
}

/// Names of protocols for a world that reads them itself.
#[cfg(feature = "emulate")]
pub(crate) fn protocol_name() -> impl TypedValueParser<Value = String> {
    use transport::protocol::Kind;

    let names = || Kind::all().map(Kind::name).collect();
    Known { parser: clap::builder::StringValueParser::new(), names }
}

fn read_protocol(text: &str) -> Result<transport::protocol::Protocol, transport::SpecError> {
    text.parse()
}
