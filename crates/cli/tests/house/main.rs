//! Rules of the repository that no lint checks. They only read files, so `make check` runs them
//! without the other tests.

mod architecture;
mod arms;
mod closures;
mod conformance_tables;
mod dependency_directions;
mod modules;
mod readme;
