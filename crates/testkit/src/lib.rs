//! Test tools: throwaway PostgreSQL, pgbouncer, S3 and SMTP servers, a fault-injecting proxy, fixtures, and the
//! conformance cases.

pub mod authority;
pub mod azurite;
mod both_databases;
pub mod cluster;
pub mod conformance;
pub mod example_program;
pub mod interface;
pub mod list_api;
pub mod pgbouncer;
pub mod poison;
pub mod proxy;
pub mod real_servers;
pub mod rest_fixture;
pub mod s3;
pub mod smtp;
pub mod sync_fixture;
pub mod webhook_receiver;
