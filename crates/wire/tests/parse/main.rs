//! Headers: read from any bytes, written, and read back.

mod captured;
mod problems;
mod properties;
mod reasons;
mod values;
