//! TCP (RFC 9293) as an engine over IP.

pub mod cc;
