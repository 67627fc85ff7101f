//! Tests of the CFDP codec.
