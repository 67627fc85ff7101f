mod agent;
mod chance;
mod contacts;
mod routes;
mod world;
