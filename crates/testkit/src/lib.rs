//! Development only: throwaway PostgreSQL, pgbouncer, a proxy that injects faults, an S3 server, conformance cases.

pub mod authority;
pub mod azurite;
pub mod cluster;
pub mod conformance;
pub mod door;
pub mod mill;
pub mod pgbouncer;
pub mod poison;
pub mod post;
pub mod proxy;
pub mod s3;
pub mod stand;
