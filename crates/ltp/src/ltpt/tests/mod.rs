mod conformance;
mod green;
mod procedures;
mod random;
mod world;
