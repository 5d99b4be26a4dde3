//! A server that really speaks S3, on a folder: objects are files in it.

use http::{Method, Response, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

/// Who may use the server, and what they know.
pub const ACCOUNT: &str = "tester";
/// What they know.
pub const SECRET: &str = "c29tZXRoaW5nLXRoYXQtbm9ib2R5LW1heS1zZWU=";

/// What happens around the requests of a server.
pub trait Around: Send + Sync + 'static {
    /// Before a request is answered; a status instead of an answer, where it is refused.
    fn before(&self, method: &Method, path: &str) -> impl Future<Output = Option<StatusCode>> + Send;

    /// When it was answered.
    fn after(&self, _method: &Method, _path: &str) {}
}

/// Nothing special.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Around for Plain {
    async fn before(&self, _method: &Method, _path: &str) -> Option<StatusCode> {
        None
    }
}

/// Serves a folder with one empty bucket, until the runtime ends: the environment of somebody who uses it.
pub async fn serve(
    folder: &Path,
    bucket: &str,
    around: Arc<impl Around>,
) -> io::Result<Vec<(&'static str, String)>> {
    std::fs::create_dir(folder.join(bucket))?;
    let files = s3s_fs::FileSystem::new(folder).map_err(|error| io::Error::other(format!("{error:?}")))?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCOUNT, SECRET));
    let service = builder.build();
    // In S3 the condition and the write are one; this server looks, and then writes.
    let turn = Arc::new(Mutex::new(()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (service, turn, around) = (service.clone(), turn.clone(), around.clone());
            let answer = service_fn(move |request: Request<Incoming>| {
                let (service, turn, around) = (service.clone(), turn.clone(), around.clone());
                async move {
                    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                    if let Some(status) = around.before(&method, &path).await {
                        let mut refused = Response::new(s3s::Body::empty());
                        *refused.status_mut() = status;
                        return Ok(refused);
                    }
                    let answer = {
                        let _turn = turn.lock().await;
                        service.call(request.map(s3s::Body::from)).await
                    };
                    around.after(&method, &path);
                    answer
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), answer));
        }
    });
    Ok(vec![
        ("AWS_ENDPOINT", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", ACCOUNT.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
    ])
}
