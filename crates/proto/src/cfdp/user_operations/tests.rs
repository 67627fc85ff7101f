//! Three entities, and what they ask of each other.
