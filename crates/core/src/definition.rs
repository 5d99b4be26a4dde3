//! Definition files in YAML: their parser, and errors with line, column and hint. Graphs and feeds use it.

pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod yaml;

pub use error::DefinitionError;
