//! Delivery by mail: one message to all recipients of a target, with the same message id on each attempt.

use super::target::{Mail, Security, variable};
use crate::retry_policy::chain;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use std::time::Duration;
use tidemill_store::Delivery;

/// Time limit for each reply of the mail server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit for the whole delivery. It is shorter than the lease of the delivery, so no other process tries
/// meanwhile.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) async fn send(way: &Mail, authorities: Option<&[u8]>, delivery: &Delivery) -> Result<(), String> {
    let message = message(way, delivery)?;
    let transport = transport(way, authorities)?;
    match tokio::time::timeout(DELIVERY_TIMEOUT, transport.send(message)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("the mail server did not finish within {} s", DELIVERY_TIMEOUT.as_secs())),
    }
}

fn transport(way: &Mail, authorities: Option<&[u8]>) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
    let tls = match way.security {
        Security::None => Tls::None,
        Security::StartTls => Tls::Required(parameters(way, authorities)?),
        Security::Tls => Tls::Wrapper(parameters(way, authorities)?),
    };
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(way.host.as_str())
        .port(way.port)
        .tls(tls)
        .timeout(Some(RESPONSE_TIMEOUT));
    if let (Some(username), Some(name)) = (&way.username, &way.password_env) {
        builder = builder.credentials(Credentials::new(username.clone(), variable(name)?));
    }
    Ok(builder.build())
}

fn parameters(way: &Mail, authorities: Option<&[u8]>) -> Result<TlsParameters, String> {
    let mut builder = TlsParameters::builder(way.host.clone());
    if let Some(authorities) = authorities {
        let certificate = Certificate::from_pem(authorities).map_err(|error| chain(&error))?;
        builder = builder.add_root_certificate(certificate);
    }
    builder.build().map_err(|error| chain(&error))
}

fn message(way: &Mail, delivery: &Delivery) -> Result<Message, String> {
    let mailbox = |address: &str| {
        address.parse::<Mailbox>().map_err(|error| format!("`{address}` is not a mail address: {error}"))
    };
    let from = mailbox(&way.from)?;
    let id = format!("<{}@{}>", delivery.delivery_id, from.email.domain());
    let alert = &delivery.alert;
    let mut builder = Message::builder()
        .from(from)
        .subject(alert.headline())
        .date(std::time::SystemTime::from(alert.last_at))
        .message_id(Some(id))
        // Prevents automatic replies.
        .raw_header(header("Auto-Submitted", "auto-generated"))
        .raw_header(header("X-Tidemill-Delivery", &delivery.delivery_id))
        .raw_header(header("X-Tidemill-Alert", alert.kind.as_str()));
    for address in &way.to {
        builder = builder.to(mailbox(address)?);
    }
    builder.body(alert.text(delivery.held)).map_err(|error| chain(&error))
}

fn header(name: &'static str, value: &str) -> HeaderValue {
    HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned())
}
