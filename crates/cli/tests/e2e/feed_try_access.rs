//! `feed try` and `preview` of an API that needs credentials, behind a private certificate authority.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use tidemill_testkit::authority::SignedCertificate;

use crate::fixture::{Fixture, Kind};
use crate::process::{Output, run};

/// Starts an API with TLS that answers only requests with a bearer token and a header. It ends with the test process.
fn start_api(signed: &SignedCertificate) -> String {
    let certificate = CertificateDer::from_pem_file(&signed.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&signed.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind("localhost:0").unwrap();
    let address = format!("https://localhost:{}/v1/orders", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            // A client that refuses the certificate closes the connection.
            let _ = answer(StreamOwned::new(connection, stream.unwrap()));
        }
    });
    address
}

fn answer(mut stream: StreamOwned<ServerConnection, TcpStream>) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let is_known = head.contains("authorization: bearer hush") && head.contains("x-shop: north");
    let (status, body) =
        if is_known { ("200 OK", r#"[{"id": 1, "name": "Ann"}]"#) } else { ("401 Unauthorized", "{}") };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// Runs a command with these variables.
fn tidemill(fixture: &Fixture, args: &[&str], variables: &[(&str, &str)]) -> Output {
    run(fixture.command(args).current_dir(fixture.path("")).envs(variables.iter().copied()))
}

#[test]
fn private_api_is_tried_with_credentials_of_variables() {
    let fixture = Fixture::new(Kind::Sqlite);
    let signed = SignedCertificate::make(&fixture.path(""), "shop").unwrap();
    let url = start_api(&signed);
    let authority = signed.authority.to_str().unwrap();
    let refused = |output: Output| {
        assert_ne!(output.code, Some(0), "{output:?}");
        output.stderr
    };
    // Neither the system nor the operator trusts the authority.
    let unknown = refused(tidemill(&fixture, &["feed", "try", &url], &[]));
    assert!(unknown.contains("certificate"), "{unknown}");
    let system = ("SSL_CERT_FILE", authority);
    let anonymous = refused(tidemill(&fixture, &["feed", "try", &url], &[system]));
    assert!(anonymous.contains("401"), "{anonymous}");

    let options = ["--bearer-env", "ORDERS_TOKEN", "--header", "X-Shop=north", "--output", "orders.yaml"];
    let args: Vec<&str> = ["feed", "try", &url].into_iter().chain(options).collect();
    let unset = refused(tidemill(&fixture, &args, &[system]));
    assert!(unset.contains("needs the environment variable `ORDERS_TOKEN`"), "{unset}");
    let token = ("ORDERS_TOKEN", "hush");
    let printed = tidemill(&fixture, &args, &[system, token]);
    assert!(!printed.stderr.contains("hush"), "{printed:?}");
    assert!(!printed.ok().contains("hush"));
    let definition = std::fs::read_to_string(fixture.path("orders.yaml")).unwrap();
    assert!(definition.contains("type: bearer\n    token: {env: ORDERS_TOKEN}"), "{definition}");
    assert!(definition.contains("X-Shop: north") && !definition.contains("hush"), "{definition}");

    // One answer with one record does not say how the next page is reached.
    std::fs::write(fixture.path("orders.yaml"), format!("{definition}\npaginator: single_page\n")).unwrap();

    // The operator names the authority in the configuration.
    let operator = ("TIDEMILL_SYNC_CA_FILE", authority);
    let shown = tidemill(&fixture, &["feed", "preview", "orders.yaml"], &[operator, token]).ok();
    assert!(shown.contains("Ann"), "{shown}");
    let missing = [("TIDEMILL_SYNC_CA_FILE", "none.pem"), token];
    let missing = refused(tidemill(&fixture, &["feed", "preview", "orders.yaml"], &missing));
    assert!(missing.contains("TIDEMILL_SYNC_CA_FILE: could not read `none.pem`"), "{missing}");
}

#[test]
fn secret_headers_and_mixed_credentials_are_refused() {
    let fixture = Fixture::new(Kind::Sqlite);
    let url = "http://127.0.0.1:9/v1/orders";
    for (args, words) in [
        (vec!["--header", "Authorization=Bearer x"], "must not be written into the definition"),
        (vec!["--header", "nothing"], "NAME=VALUE"),
        (vec!["--bearer-env", "A", "--username", "b", "--password-env", "C"], "cannot be used with"),
        (vec!["--username", "b"], "--password-env"),
    ] {
        let args: Vec<&str> = ["feed", "try", url].into_iter().chain(args).collect();
        let output = tidemill(&fixture, &args, &[]);
        assert!(output.code != Some(0) && output.stderr.contains(words), "{args:?}: {output:?}");
    }
}
