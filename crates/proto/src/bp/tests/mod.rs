mod agent;
mod chance;
mod contacts;
mod custody;
mod fragments;
mod nodes;
pub(crate) mod pair;
mod routes;
mod world;
