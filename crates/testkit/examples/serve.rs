//! The HTTP API on a SQLite file, on a free loopback port, with sample data. Prints its address, and ends when its
//! standard input closes. The API fuzzer uses it.

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, Result};
use serde_json::json;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_api::server::Server;
use tidemill_core::queue::{NewMessage, WORK_ITEMS};
use tidemill_core::run::QueueRun;
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::{Options, Queue as _, Store};

#[tokio::main]
async fn main() -> Result<()> {
    let file = std::env::args().nth(1).context("name a file for the database")?;
    let store = Store::open(&Options::new(&file, host_now)).await?;
    store.migrate(None).await?;
    store.create_project("shop", vec!["staging".to_owned(), "production".to_owned()], None).await?;
    let engine = Engine::new(store.clone(), Clock::Database, RetryPolicy::None);
    for _ in 0..20 {
        engine.queue(QueueRun::new("shop", "staging")).await?;
    }
    store.send(vec![NewMessage::new(WORK_ITEMS, "page-1", "gems", json!({}))], None).await?;
    let syncs = Syncs::new(engine, SyncSettings::default());
    let app = App::new(syncs, Access::Open { name: "fuzz".to_owned() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let mut output = std::io::stdout();
    writeln!(output, "http://{}", listener.local_addr()?)?;
    output.flush()?;
    let over = async {
        // The parent process holds the other end of standard input, so this program ends with it.
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
    };
    Server::new(app).serve(listener, over).await;
    Ok(())
}
