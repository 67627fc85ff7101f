//! CFDP entities over another protocol, which is LTP or that of bundles.

use engine::{Engine as _, Time};
use proto::cfdp;
use proto::ut::{self, Below, Carried};

use crate::adapter::ltp::ltp_config;
use crate::contract::SendRequest;
use crate::engines::AnyEngine;
use crate::protocol::Protocol;
use crate::text::SpecError;

/// What a CFDP entity over LTP is told.
#[derive(Clone, Debug)]
pub struct CfdpLtpConfig {
    /// The entity.
    pub cfdp: cfdp::Config,
    /// Its PDUs.
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

/// An entity whose PDUs another protocol carries: that repeats what is lost, so that class 1 is enough.
pub(crate) fn carried_cfdp() -> cfdp::Config {
    let mode = wire::cfdp::TransmissionMode::Unacknowledged;
    let default_remote = cfdp::Remote { mode, ..cfdp::Remote::default() };
    cfdp::Config { default_remote, ..cfdp::Config::default() }
}

/// What of an entity over another protocol is under way, as [`AnyEngine::under_way`] counts it.
pub(crate) fn carried_under_way<B: Below>(carried: &Carried<B>) -> usize {
    transactions(carried.entity()).max(carried.under_way())
}

/// Transactions of which more will be done by itself.
pub(crate) fn transactions(entity: &cfdp::Entity) -> usize {
    let states = entity.transactions().map(|report| report.state);
    states.filter(|state| *state != cfdp::State::Suspended).count()
}

/// What an entity over another protocol tells next. PDUs that are lost show in how transactions end.
pub(crate) fn carried_told<B: Below>(carried: &mut Carried<B>) -> Option<cfdp::Indication> {
    loop {
        match carried.poll_indication()? {
            ut::Indication::Cfdp(told) => return Some(told),
            ut::Indication::Lost { .. } | ut::Indication::Noted(_) => {}
        }
    }
}

/// The configuration of CFDP over LTP; profiles are those of LTP.
///
/// # Errors
///
/// When there is no such profile.
pub fn cfdp_ltp_config(protocol: &Protocol) -> Result<CfdpLtpConfig, SpecError> {
    let mut ltp = ltp_config(protocol)?;
    // The PDUs of a window in each direction.
    let ut::Config { pdu_max, limits, .. } = ut::Config::default();
    ltp.limits.units_total = ltp.limits.units_total.max(2 * pdu_max * limits.window);
    let below = ut::LtpConfig { ltp, ..ut::LtpConfig::default() };
    Ok(CfdpLtpConfig { below, ..CfdpLtpConfig::default() })
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

impl AnyEngine {
    /// Its CFDP entity, if it has one.
    #[must_use]
    pub fn entity(&self) -> Option<&cfdp::Entity> {
        match self {
            Self::Cfdp(entity) => Some(entity),
            Self::CfdpLtp(node) => Some(node.entity()),
            Self::Ltp(_) | Self::Saratoga(..) | Self::Norm(..) | Self::OverTcp(_) => None,
            // That of a node is the node's.
            Self::Bundles(_) => None,
        }
    }

    /// Sends a file or a request by its CFDP entity.
    ///
    /// # Errors
    ///
    /// The entity refuses, or there is none.
    pub fn put(
        &mut self,
        now: Time,
        request: cfdp::PutRequest,
    ) -> Result<wire::cfdp::TransactionId, cfdp::RequestError> {
        match self {
            Self::Cfdp(entity) => entity.put(now, request),
            Self::CfdpLtp(node) => node.put(now, request),
            Self::Ltp(_)
            | Self::Saratoga(..)
            | Self::Norm(..)
            | Self::OverTcp(_)
            | Self::Bundles(_) => Err(cfdp::RequestError::NoPath(request.destination)),
        }
    }
}
