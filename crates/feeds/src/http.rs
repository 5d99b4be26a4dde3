//! HTTP shared by the feeds: client with retries and rate limit, TLS, tokens, and the GraphQL envelope.

pub(crate) mod client;
pub(crate) mod envelope;
pub(crate) mod markup;
pub(crate) mod tls;
pub(crate) mod token;
