//! Contact plans, and the routes through them.

pub mod contacts;
pub mod routes;
