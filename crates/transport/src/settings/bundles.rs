//! The settings of a bundle node (see [`BundlesConfig`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::bp::{agent, filecl, files, ltpcl, tcpcl};
use proto::saratoga;
use serde::{Deserialize, Serialize};

use super::carried::{CfdpUserSettings, UtSettings};
use super::form::{Form, Switch, table};
use super::tcp::TcpSettings;
use super::{LtpSettings, Mib, NormSettings, SaratogaSettings, at_least, not_often, some};
use crate::adapter::saratoga::{Remotes, SaratogaConfig};
use crate::bundles::{self, BundlesConfig};
use crate::contact_plan::{self, Format};
use crate::quantity::{Size, Span};
use crate::text::{self, SpecError};

/// What a user says about a bundle node; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BundlesSettings {
    /// Octets of a file in one bundle, or `off`: a file is one bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle_size: Option<Switch<Size>>,
    /// How long what is sent is of use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Span>,
    /// Whether receivers are asked to report what they have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reports: Option<bool>,
    /// The version of what is sent, 6 or 7.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u8>,
    /// Whether custody is asked for, which bundles of version 6 know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custody: Option<bool>,
    /// Whether bundles survive a crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
    /// How often a bundle may be forwarded, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<Switch<u8>>,
    /// By way of which neighbours others are reached, by their numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub routes: BTreeMap<String, u64>,
    /// The contact plan by which it routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact_plan: Option<PathBuf>,
    /// Silence after which a link is closed, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Switch<Span>>,
    /// What its store holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreSettings>,
    /// TCPCL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcpcl: Option<TcpclSettings>,
    /// TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpSettings>,
    /// LTPCL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ltpcl: Option<LtpclSettings>,
    /// LTP below LTPCL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ltp: Option<LtpSettings>,
    /// The layer over Saratoga.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saratogacl: Option<FileclSettings>,
    /// Saratoga below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saratoga: Option<SaratogaSettings>,
    /// The CFDP entity whose PDUs the bundles carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfdp: Option<Mib>,
    /// Its PDUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ut: Option<UtSettings>,
    /// The layer over NORM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normcl: Option<FileclSettings>,
    /// NORM below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormSettings>,
}

table! {
    /// What a node's store holds at most (see [`agent::Limits`]).
    StoreSettings: agent::Limits {
        /// Bundles.
        bundles: usize,
        /// Octets of their payloads.
        octets: Size,
        /// Bundles that are remembered when they are gone.
        gone: usize,
    }
}

/// What a user says about TCPCL; what is left out stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpclSettings {
    /// Time between signs of life, in whole seconds, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Switch<Span>>,
    /// Octets of data in a segment that is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<Size>,
    /// Bundles under way to a neighbour at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Octets of data of a session that are sent and not acknowledged, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unacknowledged: Option<Switch<Size>>,
    /// How long a peer may take until a session is established, and to end it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<Span>,
    /// How long to wait until a connection is tried again, at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnect: Option<Span>,
    /// The same, at most: each time it is twice as long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconnect_max: Option<Span>,
}

impl TcpclSettings {
    fn apply(&self, config: &mut tcpcl::Config) -> Result<(), SpecError> {
        not_often("tcpcl.patience", self.patience)?;
        not_often("tcpcl.reconnect", self.reconnect)?;
        not_often("tcpcl.reconnect_max", self.reconnect_max)?;
        at_least("tcpcl.segment", self.segment, 1)?;
        some("tcpcl.window", self.window)?;
        if let Some(keepalive) = self.keepalive {
            let span = keepalive.on().unwrap_or_default().duration();
            let whole =
                span.subsec_nanos() == 0 && (keepalive == Switch::Off || span.as_secs() > 0);
            let seconds = u16::try_from(span.as_secs()).ok().filter(|_| whole);
            config.keepalive_s = seconds.ok_or_else(|| {
                let message = "tcpcl.keepalive is whole seconds from 1 to 65535, or \"off\"";
                SpecError::invalid(message)
            })?;
        }
        if let Some(segment) = self.segment {
            config.segment = segment.value();
        }
        config.limits.window = self.window.unwrap_or(config.limits.window);
        at_least("tcpcl.unacknowledged", self.unacknowledged.and_then(Switch::on), 1)?;
        if let Some(most) = self.unacknowledged {
            config.limits.unacknowledged = most.on().map_or(u64::MAX, Size::bytes);
        }
        config.patience = self.patience.map_or(config.patience, Span::duration);
        let (first, most) = config.reconnect;
        let first = self.reconnect.map_or(first, Span::duration);
        config.reconnect = (first, self.reconnect_max.map_or(most, Span::duration).max(first));
        Ok(())
    }

    fn of(config: &tcpcl::Config) -> Self {
        let keepalive = match config.keepalive_s {
            0 => Switch::Off,
            seconds => Switch::On(Span(Duration::from_secs(seconds.into()))),
        };
        Self {
            keepalive: Some(keepalive),
            segment: Form::of(&config.segment),
            window: Some(config.limits.window),
            unacknowledged: Some(match config.limits.unacknowledged {
                u64::MAX => Switch::Off,
                most => Switch::On(Size(most)),
            }),
            patience: Some(Span(config.patience)),
            reconnect: Some(Span(config.reconnect.0)),
            reconnect_max: Some(Span(config.reconnect.1)),
        }
    }
}

/// What of a block is red.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Color {
    /// What the agent wants to arrive, which is everything.
    AsAsked,
    /// All.
    Red,
    /// Nothing.
    Green,
    /// Its first octets.
    Mixed(Size),
}

impl From<Color> for ltpcl::Color {
    fn from(color: Color) -> Self {
        match color {
            Color::AsAsked => Self::AsAsked,
            Color::Red => Self::Red,
            Color::Green => Self::Green,
            Color::Mixed(octets) => Self::Mixed(octets.bytes()),
        }
    }
}

impl Form<ltpcl::Color> for Color {
    fn of(value: &ltpcl::Color) -> Option<Self> {
        Some(match value {
            ltpcl::Color::AsAsked => Self::AsAsked,
            ltpcl::Color::Red => Self::Red,
            ltpcl::Color::Green => Self::Green,
            ltpcl::Color::Mixed(octets) => Self::Mixed(Size(*octets)),
        })
    }

    fn value(&self) -> ltpcl::Color {
        (*self).into()
    }
}

table! {
    /// What a user says about LTPCL (see [`ltpcl::Config`]).
    LtpclSettings: ltpcl::Config {
        /// What of a block is red.
        color: Color,
        /// How long a neighbour may be away before what is under way is given up.
        patience: Span,
    }
    also {
        /// Bundles under way to a neighbour at one time.
        #[serde(skip_serializing_if = "Option::is_none")]
        window: Option<usize>,
    }
}

impl LtpclSettings {
    fn apply(&self, config: &mut ltpcl::Config) -> Result<(), SpecError> {
        not_often("ltpcl.patience", self.patience)?;
        some("ltpcl.window", self.window)?;
        self.apply_fields(config);
        config.limits.window = self.window.unwrap_or(config.limits.window);
        Ok(())
    }
}

/// What a user says about a layer over Saratoga or NORM; what is left out stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileclSettings {
    /// How long a neighbour may be away before what is under way is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<Span>,
    /// Bundles under way to a neighbour at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
}

impl FileclSettings {
    fn apply<C>(&self, name: &str, config: &mut filecl::Config<C>) -> Result<(), SpecError> {
        not_often(&format!("{name}.patience"), self.patience)?;
        some(&format!("{name}.window"), self.window)?;
        config.patience = self.patience.map_or(config.patience, Span::duration);
        config.limits.window = self.window.unwrap_or(config.limits.window);
        Ok(())
    }

    fn of<C>(config: &filecl::Config<C>) -> Self {
        Self { patience: Some(Span(config.patience)), window: Some(config.limits.window) }
    }
}

impl BundlesSettings {
    /// Changes `config` to what is said here.
    ///
    /// # Errors
    ///
    /// When a value is out of its range, or the contact plan is none.
    pub fn apply(&self, config: &mut BundlesConfig) -> Result<(), SpecError> {
        not_often("lifetime", self.lifetime)?;
        not_often("idle", self.idle.and_then(Switch::on))?;
        at_least("bundle_size", self.bundle_size.and_then(Switch::on), 1)?;
        if self.hop_limit.and_then(Switch::on) == Some(0) {
            return Err(SpecError::invalid("hop_limit is 0; it must be at least 1"));
        }
        let files::Config { part, lifetime, reports, .. } = &mut config.files;
        if let Some(size) = self.bundle_size {
            *part = size.on().map(Size::bytes);
        }
        *lifetime = self.lifetime.map_or(*lifetime, Span::duration);
        *reports = self.reports.unwrap_or(*reports);
        config.files.version = match self.version {
            None => config.files.version,
            Some(6) => agent::Version::Six,
            Some(7) => agent::Version::Seven,
            Some(other) => {
                let message = format!("version is {other}; bundles are of version 6 or 7");
                return Err(SpecError::invalid(message));
            }
        };
        config.files.custody = self.custody.unwrap_or(config.files.custody);
        if config.files.custody && config.files.version != agent::Version::Six {
            return Err(SpecError::invalid("custody is of bundles of version 6: version = 6"));
        }
        let agent = &mut config.agent;
        agent.persistent = self.persistent.unwrap_or(agent.persistent);
        if let Some(limit) = self.hop_limit {
            agent.hop_limit = limit.on();
        }
        if let Some(store) = &self.store {
            some("store.bundles", store.bundles)?;
            store.apply_fields(&mut agent.limits);
        }
        for (to, via) in &self.routes {
            let number = to.parse::<u64>().ok().filter(|number| number.to_string() == *to);
            let number = number.ok_or_else(|| {
                SpecError::invalid(format!("routes.{to}: a node is called by its number"))
            })?;
            config.routes.insert(number, *via);
        }
        if let Some(idle) = self.idle {
            config.idle = idle.on().map(Span::duration);
        }
        if let Some(path) = &self.contact_plan {
            config.plan = Some((path.clone(), read_plan(path)?));
        }
        if let Some(tcpcl) = &self.tcpcl {
            tcpcl.apply(&mut config.tcpcl)?;
        }
        if let Some(tcp) = &self.tcp {
            tcp.apply_at("tcp", &mut config.streams.options)?;
        }
        if let Some(ltpcl) = &self.ltpcl {
            ltpcl.apply(&mut config.ltpcl)?;
        }
        if let Some(ltp) = &self.ltp {
            ltp.apply(&mut config.ltpcl.ltp).map_err(|error| error.below("ltp"))?;
        }
        self.apply_cfdp(config)?;
        self.apply_files(config)
    }

    /// The same of an entity whose PDUs the bundles carry.
    fn apply_cfdp(&self, config: &mut BundlesConfig) -> Result<(), SpecError> {
        let Some(told) = &mut config.cfdp else {
            if self.cfdp.is_some() || self.ut.is_some() {
                let message = "the tables `cfdp` and `ut` are of protocols cfdp-bp-…, which put CFDP into bundles";
                return Err(SpecError::invalid(message));
            }
            return Ok(());
        };
        CfdpUserSettings { ut: self.ut, cfdp: self.cfdp.clone() }.apply(told)
    }

    /// The same of layers over engines of files.
    fn apply_files(&self, config: &mut BundlesConfig) -> Result<(), SpecError> {
        if let Some(layer) = &self.saratogacl {
            layer.apply("saratogacl", &mut config.saratogacl)?;
        }
        if let Some(settings) = &self.saratoga {
            over_saratoga(settings, &mut config.saratogacl.engine, &mut config.remotes)
                .map_err(|error| error.below("saratoga"))?;
        }
        if let Some(layer) = &self.normcl {
            layer.apply("normcl", &mut config.normcl)?;
        }
        self.norm.as_ref().map_or(Ok(()), |norm| {
            norm.apply(&mut config.normcl.engine).map_err(|error| error.below("norm"))
        })
    }

    /// Everything that `config` says.
    #[must_use]
    pub fn of(config: &BundlesConfig) -> Self {
        let switch = |limit: Option<u8>| limit.map_or(Switch::Off, Switch::On);
        Self {
            bundle_size: Some(config.files.part.map_or(Switch::Off, |part| Switch::On(Size(part)))),
            lifetime: Some(Span(config.files.lifetime)),
            reports: Some(config.files.reports),
            version: Some(match config.files.version {
                agent::Version::Six => 6,
                agent::Version::Seven => 7,
            }),
            custody: Some(config.files.custody),
            persistent: Some(config.agent.persistent),
            hop_limit: Some(switch(config.agent.hop_limit)),
            routes: config.routes.iter().map(|(to, via)| (to.to_string(), *via)).collect(),
            contact_plan: config.plan.as_ref().map(|(path, _)| path.clone()),
            idle: Some(config.idle.map_or(Switch::Off, |idle| Switch::On(Span(idle)))),
            store: Some(StoreSettings::of_fields(&config.agent.limits)),
            tcpcl: Some(TcpclSettings::of(&config.tcpcl)),
            tcp: Some(TcpSettings::of(&config.streams.options)),
            ltpcl: Some(LtpclSettings {
                window: Some(config.ltpcl.limits.window),
                ..LtpclSettings::of_fields(&config.ltpcl)
            }),
            ltp: Some(LtpSettings::of(&config.ltpcl.ltp)),
            cfdp: config.cfdp.as_ref().map(|told| Mib::of(&told.cfdp)),
            ut: config.cfdp.as_ref().map(|told| UtSettings::of(&told.ut, Some(told.service))),
            saratogacl: Some(FileclSettings::of(&config.saratogacl)),
            normcl: Some(FileclSettings::of(&config.normcl)),
            norm: Some(NormSettings::of(&config.normcl.engine)),
            saratoga: Some(SaratogaSettings::of(&SaratogaConfig {
                config: config.saratogacl.engine.clone(),
                remotes: config.remotes.clone(),
                ..SaratogaConfig::default()
            })),
        }
    }
}

/// Changes what Saratoga is told below bundles, which only its version 1 knows.
///
/// # Errors
///
/// When a value is out of its range, or the version is 0.
pub fn over_saratoga(
    settings: &SaratogaSettings,
    config: &mut saratoga::Config,
    remotes: &mut Remotes,
) -> Result<(), SpecError> {
    let mut peer = SaratogaConfig {
        config: std::mem::take(config),
        remotes: std::mem::take(remotes),
        ..SaratogaConfig::default()
    };
    settings.apply(&mut peer)?;
    (*config, *remotes) = (peer.config, peer.remotes);
    if config.version == saratoga::Version::V0 {
        return Err(SpecError::invalid("version is 0, which knows no bundles; write version = 1"));
    }
    Ok(())
}

/// Reads a contact plan, whose form its name says. Its times count from the world's beginning.
fn read_plan(path: &Path) -> Result<proto::bp::contacts::ContactPlan, SpecError> {
    let name = path.to_string_lossy();
    let format = Format::of_name(&name).ok_or_else(|| {
        SpecError::invalid(format!(
            "contact_plan {name:?}: the name of a contact plan ends in .toml, .json or .ionrc"
        ))
    })?;
    contact_plan::read(format, &text::read_text(path)?, &name, bundles::epoch())
}
