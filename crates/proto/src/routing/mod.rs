//! Contact plans, and the routes through them that agents and engines choose.

pub mod contacts;
pub mod routes;
