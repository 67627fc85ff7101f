//! CFDP entities over another protocol: LTP or bundles.
use session::settings::form::{Number, visit_if};
use session::settings::{Field, Settings, Visited, Visitor};
use session::visit;
use ut::{self, Below, LayeredEntity};

use crate::adapter::ltp::ltp_config;
use crate::contract::{Protocol, SendRequest};
use crate::text::SpecError;

/// Configuration of a CFDP entity over LTP.
#[derive(Clone, Debug)]
pub struct CfdpLtpConfig {
    /// The entity.
    pub cfdp: cfdp::Config,
    /// Settings for the PDUs of the entity.
    pub ut: ut::Config,
    /// LTP.
    pub below: ut::LtpConfig,
}

impl Default for CfdpLtpConfig {
    fn default() -> Self {
        let (ut, below) = (ut::Config::default(), ut::LtpConfig::default());
        Self { cfdp: carried_cfdp(), ut, below }
    }
}

impl Settings for CfdpLtpConfig {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        let mut ut = Ut { config: &mut self.ut, service: None };
        visit! { visitor;
            /// PDUs below the entity.
            "ut": ut as Table,
            /// The entity.
            "cfdp": self.cfdp as Table,
        }
        self.below.visit(visitor)
    }
}

/// PDUs below an entity and, if bundles carry them, the service of each node that receives them.
pub(crate) struct Ut<'a> {
    pub(crate) config: &'a mut ut::Config,
    pub(crate) service: Option<&'a mut u64>,
}

impl Settings for Ut<'_> {
    fn visit(&mut self, visitor: &mut dyn Visitor) -> Visited {
        self.config.visit(visitor)?;
        let doc = &[" Service of each node that receives PDUs, if bundles carry them."];
        let field = Field { key: "service", doc, bound: None };
        let why = " is of bundles; CFDP is LTP's client service 3";
        visit_if::<Number, _>(&field, self.service.as_deref_mut(), why, visitor)
    }
}

/// Entity whose PDUs are carried by a protocol that retransmits lost data, so that class 1
/// suffices.
pub(crate) fn carried_cfdp() -> cfdp::Config {
    of_class_1(cfdp::Config::default())
}

fn of_class_1(mut config: cfdp::Config) -> cfdp::Config {
    config.default_remote.mode = cfdp::pdu::TransmissionMode::Unacknowledged;
    config
}

/// Settings with the profile that a stack gives to CFDP.
pub(crate) fn profiled_cfdp(protocol: &Protocol) -> cfdp::Config {
    let profile = protocol.layers.get(protocol.kind.layers()[0].name);
    of_class_1(profile.and_then(|name| cfdp::profile(name)).unwrap_or_default())
}

/// Unfinished transfers of an entity over another protocol, as counted by
/// [`Transport::under_way`](crate::Transport::under_way).
pub(crate) fn carried_under_way<B: Below>(carried: &LayeredEntity<B>) -> usize {
    transactions(carried.entity()).max(carried.under_way())
}

/// Transactions that advance by themselves.
pub(crate) fn transactions(entity: &cfdp::Entity) -> usize {
    let states = entity.transactions().map(|report| report.state);
    states.filter(|state| *state != cfdp::State::Suspended).count()
}

/// Configuration of CFDP over LTP, with the profiles of LTP.
///
/// # Errors
///
/// When there is no such profile.
pub fn cfdp_ltp_config(protocol: &Protocol) -> Result<CfdpLtpConfig, SpecError> {
    let mut ltp = ltp_config(protocol)?;
    // The PDUs of a window in each direction.
    let ut::Config { pdu_max, limits, .. } = ut::Config::default();
    ltp.limits.units_total = ltp.limits.units_total.max(2 * pdu_max * limits.window);
    let mut below = ut::LtpConfig { ltp, ..ut::LtpConfig::default() };
    if !protocol.kind.is_reliable() {
        below.color = ut::Color::Green;
    }
    Ok(CfdpLtpConfig { cfdp: profiled_cfdp(protocol), below, ..CfdpLtpConfig::default() })
}

/// A request to send a file by CFDP.
pub(crate) fn put_request(send: &SendRequest) -> cfdp::PutRequest {
    cfdp::PutRequest {
        destination: send.destination,
        source: Some(send.source.clone()),
        source_name: Some(send.name.clone()),
        destination_name: send.name.clone(),
        mode: Some(send.class.into()),
        ..cfdp::PutRequest::default()
    }
}
