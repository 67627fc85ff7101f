mod conformance;
mod procedures;
mod random;
mod world;
