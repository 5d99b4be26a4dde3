//! Webhooks that go out: one request, with the id of the message and, where there is a secret, a signature.

use super::target::{Address, Shape, Webhook, variable};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::signature::sign;
use tidemill_store::Delivery;

/// How long the answer may take. It is shorter than the time for which nobody else tries.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends one request. Any success is enough; what the answer says is not read.
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
    let address: reqwest::Url = address.parse().map_err(|_| "its address is none".to_owned())?;
    let host = address.host_str().unwrap_or_default().to_owned();
    let body = body(way.shape, delivery);
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
        // The address may hold a token; only the host is told.
        format!("{host} does not answer: {}", innermost(&error.without_url()))
    })?;
    let status = answer.status();
    if status.is_success() { Ok(()) } else { Err(format!("{host} answered with status {}", status.as_u16())) }
}

fn body(shape: Shape, delivery: &Delivery) -> String {
    let alert = &delivery.alert;
    match shape {
        Shape::Slack => {
            let text = format!("*{}*\n{}", alert.headline(), alert.text(delivery.held));
            serde_json::json!({"text": escaped(&text)}).to_string()
        }
        Shape::Generic => serde_json::json!({
            "delivery_id": delivery.delivery_id,
            "alert": alert,
            "text": alert.text(delivery.held),
            "held_back": delivery.held,
        })
        .to_string(),
    }
}

/// What means something to Slack, and must not: a message names nobody and links nowhere by itself.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn client(authorities: Option<&[u8]>, host: &str) -> Result<reqwest::Client, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for certificate in CertificateDer::pem_slice_iter(authorities.unwrap_or_default()) {
        let certificate = certificate.map_err(|error| format!("the certificates cannot be read: {error}"))?;
        roots.add(certificate).map_err(|error| format!("a certificate cannot be used: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .timeout(PATIENCE)
        // A redirect would carry the message to wherever it points.
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
