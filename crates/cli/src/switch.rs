//! Values that options of several commands have.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use transport::settings::tcp::{Congestion, TcpBuffers};

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl From<Switch> for bool {
    fn from(switch: Switch) -> Self {
        switch == Switch::On
    }
}

/// Reads the name of a congestion control.
pub(crate) fn congestion() -> impl TypedValueParser<Value = Congestion> {
    let names = Congestion::ALL
        .iter()
        .map(|control| PossibleValue::new(control.name()).help(control.summary()));
    PossibleValuesParser::new(names)
        .map(|name| Congestion::from_name(&name).expect("only these names are taken"))
}

/// Reads the growth limit of TCP's buffers.
pub(crate) fn buffers() -> impl TypedValueParser<Value = TcpBuffers> {
    let values = TcpBuffers::ALL.iter().map(|buffers| {
        let (send, receive) = buffers.most();
        let help = format!("{} MiB to send, {} MiB to receive", send >> 20, receive >> 20);
        PossibleValue::new(buffers.name()).help(help)
    });
    PossibleValuesParser::new(values).map(|name| {
        let found = TcpBuffers::ALL.iter().copied().find(|buffers| buffers.name() == name);
        found.expect("only these names are taken")
    })
}
