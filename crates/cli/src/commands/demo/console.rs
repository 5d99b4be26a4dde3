//! `tidemill demo --serve`: the console on the data of the demo.

use super::DemoArgs;
use crate::commands::server::{self, ServerArgs};
use crate::commands::work;
use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use std::process::ExitCode;
use tidemill_engine::sync::Syncs;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A console that is being served.
pub(super) struct DemoConsole {
    serving: JoinHandle<()>,
    stop: watch::Receiver<bool>,
}

impl DemoConsole {
    /// Starts the console. On a loopback address only the current user has access.
    pub(super) async fn open(
        syncs: &Syncs,
        config: &Config,
        args: &DemoArgs,
        out: Out,
    ) -> Result<Self, Failure> {
        let server_args = ServerArgs { listen: args.listen, tls_cert: None, tls_key: None, auth: false };
        let bound = server::bind(syncs, config, &server_args, out).await?;
        let stop = work::stop_signal();
        let serving = tokio::spawn(bound.serve(stop.clone()));
        Ok(Self { serving, stop })
    }

    /// Runs the demo, and serves the console until Ctrl-C, which also ends a running demo.
    pub(super) async fn run_beside(
        self,
        demo: impl Future<Output = Result<ExitCode, Failure>>,
        out: Out,
    ) -> Result<ExitCode, Failure> {
        tokio::select! {
            result = demo => {
                result?;
                out.inform("the console is still running; press Ctrl-C to end it");
                work::stopped(self.stop).await;
            }
            () = work::stopped(self.stop.clone()) => {}
        }
        let _ = self.serving.await;
        Ok(ExitCode::SUCCESS)
    }
}
