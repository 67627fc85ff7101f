mod agent;
mod chance;
mod contacts;
mod nodes;
mod routes;
mod world;
