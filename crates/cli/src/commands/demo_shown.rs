//! The console on a demo's data: from its beginning, and until somebody has seen enough.

use crate::args_server::Serve;
use crate::args_sync::Demo as Order;
use crate::config::Config;
use crate::fail::Failure;
use crate::out::Out;
use std::process::ExitCode;
use tidemill_engine::sync::Syncs;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A console that is open.
pub(super) struct Shown {
    serving: JoinHandle<()>,
    stop: watch::Receiver<bool>,
}

impl Shown {
    /// Opens it. Only whoever uses this machine can come in.
    pub(super) async fn open(
        syncs: &Syncs,
        config: &Config,
        order: &Order,
        out: Out,
    ) -> Result<Self, Failure> {
        let serve = Serve { listen: order.listen, tls_cert: None, tls_key: None, auth: false };
        let ready = super::server::prepare(syncs, config, &serve, out).await?;
        let stop = super::work::stop_signal();
        let serving = tokio::spawn(ready.serve(stop.clone()));
        Ok(Self { serving, stop })
    }

    /// Plays the demo beside it, and then leaves it open until Ctrl-C, which also ends the demo before its end.
    pub(super) async fn beside(
        self,
        play: impl Future<Output = Result<ExitCode, Failure>>,
        out: Out,
    ) -> Result<ExitCode, Failure> {
        tokio::select! {
            played = play => {
                played?;
                out.say("the console stays open on the demo's data; Ctrl-C ends it");
                super::work::stopped(self.stop).await;
            }
            () = super::work::stopped(self.stop.clone()) => {}
        }
        let _ = self.serving.await;
        Ok(ExitCode::SUCCESS)
    }
}
