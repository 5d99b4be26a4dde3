//! Delivery by webhook: one request with the message id and, if a secret is configured, a signature.

use super::target::{Address, BodyFormat, Webhook, variable};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::signature::sign;
use tidemill_store::Delivery;

/// Time limit for the response. It is shorter than the lease of the delivery, so no other process tries meanwhile.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends one request. Any success status counts; the response body is not read.
pub(super) async fn send(
    way: &Webhook,
    authorities: Option<&[u8]>,
    delivery: &Delivery,
    now: Timestamp,
) -> Result<(), String> {
    let address = match &way.address {
        Address::Plain(address) => address.clone(),
        Address::Variable(name) => variable(name)?,
    };
    let address: reqwest::Url = address.parse().map_err(|_| "the webhook's URL is invalid".to_owned())?;
    let host = address.host_str().unwrap_or_default().to_owned();
    let body = body(way.format, delivery);
    let mut request = client(authorities, &host)?
        .post(address)
        .header("content-type", "application/json")
        .header("x-tidemill-delivery", &delivery.delivery_id);
    if let Some(name) = &way.secret_env {
        let secret = variable(name)?;
        let time = now.timestamp().to_string();
        let signature = sign(secret.as_bytes(), &[time.as_bytes(), b".", body.as_bytes()]);
        request = request
            .header("x-tidemill-timestamp", time)
            .header("x-tidemill-signature", format!("v1={signature}"));
    }
    let answer = request.body(body).send().await.map_err(|error| {
        // The URL may contain a token, so only the host is reported.
        format!("{host} does not answer: {}", innermost(&error.without_url()))
    })?;
    let status = answer.status();
    if status.is_success() { Ok(()) } else { Err(format!("{host} answered with status {}", status.as_u16())) }
}

fn body(format: BodyFormat, delivery: &Delivery) -> String {
    let alert = &delivery.alert;
    match format {
        BodyFormat::Slack => {
            let text = format!("*{}*\n{}", alert.headline(), alert.text(delivery.held));
            serde_json::json!({"text": escaped(&text)}).to_string()
        }
        BodyFormat::Generic => serde_json::json!({
            "delivery_id": delivery.delivery_id,
            "alert": alert,
            "text": alert.text(delivery.held),
            "held_back": delivery.held,
        })
        .to_string(),
    }
}

/// Escapes characters that Slack interprets, so that a message contains no mentions and no links.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn client(authorities: Option<&[u8]>, host: &str) -> Result<reqwest::Client, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in CertificateDer::pem_slice_iter(authorities.unwrap_or_default()) {
        let certificate = certificate.map_err(|error| format!("invalid certificate in ca_file: {error}"))?;
        roots.add(certificate).map_err(|error| format!("unusable certificate in ca_file: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .timeout(RESPONSE_TIMEOUT)
        // Following a redirect would send the message to its target.
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")));
    if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| innermost(&error))
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(cause) = inner.source() {
        inner = cause;
    }
    inner.to_string()
}
