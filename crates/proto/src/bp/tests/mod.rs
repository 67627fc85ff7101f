mod agent;
mod chance;
mod contacts;
mod nodes;
pub(crate) mod pair;
mod routes;
mod world;
