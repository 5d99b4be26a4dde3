//! Development only: throwaway PostgreSQL, pgbouncer, a proxy that injects faults, conformance cases.

pub mod cluster;
pub mod conformance;
pub mod door;
pub mod pgbouncer;
pub mod proxy;
