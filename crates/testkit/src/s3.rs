//! An S3 server on a directory: objects are files in it.

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

/// Access key of the only account.
pub const ACCOUNT: &str = "tester";
/// Secret key of the only account.
pub const SECRET: &str = "c29tZXRoaW5nLXRoYXQtbm9ib2R5LW1heS1zZWU=";

/// Hooks around the requests of a server.
pub trait Middleware: Send + Sync + 'static {
    /// Called before a request is answered; returning a status refuses the request.
    fn before(&self, method: &Method, path: &str) -> impl Future<Output = Option<StatusCode>> + Send;

    /// Called after a request was answered.
    fn after(&self, _method: &Method, _path: &str) {}
}

/// A middleware that lets every request pass.
#[derive(Debug, Clone, Copy)]
pub struct NoMiddleware;

impl Middleware for NoMiddleware {
    async fn before(&self, _method: &Method, _path: &str) -> Option<StatusCode> {
        None
    }
}

/// Serves a directory with one empty bucket until the runtime ends; returns the environment variables of a client.
pub async fn serve(
    folder: &Path,
    bucket: &str,
    around: Arc<impl Middleware>,
) -> io::Result<Vec<(&'static str, String)>> {
    std::fs::create_dir(folder.join(bucket))?;
    let files = s3s_fs::FileSystem::new(folder).map_err(|error| io::Error::other(format!("{error:?}")))?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCOUNT, SECRET));
    let service = builder.build();
    // S3 checks the condition and writes atomically; this server does it in two steps, so requests are serialized.
    let lock = Arc::new(Mutex::new(()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (service, lock, around) = (service.clone(), lock.clone(), around.clone());
            let answer = service_fn(move |request: Request<Incoming>| {
                let (service, lock, around) = (service.clone(), lock.clone(), around.clone());
                async move {
                    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                    if let Some(status) = around.before(&method, &path).await {
                        let mut refused = Response::new(s3s::Body::empty());
                        *refused.status_mut() = status;
                        return Ok(refused);
                    }
                    let answer = {
                        let _turn = lock.lock().await;
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
