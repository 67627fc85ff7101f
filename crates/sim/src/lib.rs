//! See the design.
