//! `tidemill audit`: lists, exports and verifies the audit log.
//!
//! Verification recomputes every hash in this process, so it does not trust the server that delivers the log.

use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::requests;
use crate::times::{self, When};
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidemill_client::{Client, Error};
use tidemill_core::Timestamp;
use tidemill_core::access::AuditRecord;
use tidemill_core::audit::{
    AuditFault, AuditHead, AuditOutcome, AuditSeal, SealedBatch, VerifiedAudit, Verifier,
};
use tidemill_wire::Page;
use tidemill_wire::access::{ListAudit, ListSeals, ListUnsealed};

/// Attempts of a verification while retention removes the beginning of the log.
const ATTEMPTS_MAX: u32 = 3;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List audit entries, newest first; with --json, one JSON object per line
    #[command(after_help = "Example:\n  tidemill audit list --limit 20")]
    List {
        /// Maximum number of entries
        #[arg(long, default_value_t = 100, value_name = "N")]
        limit: usize,
        /// Restrict the list to this project
        #[arg(long, value_name = "PROJECT")]
        project: Option<String>,
    },
    /// Write all seals with their entries as JSON lines, oldest first
    #[command(after_help = "Example:\n  tidemill audit export > audit.jsonl")]
    Export {
        /// Omit seals that were made before this time: a time, or a duration such as 30d
        #[arg(long, value_parser = times::parse_when, value_name = "TIME")]
        since: Option<When>,
    },
    /// Print the newest seal as JSON; a copy kept elsewhere shows later that no seal was removed
    #[command(after_help = "Example:\n  tidemill audit head > head.json")]
    Head,
    /// Recompute the hash chain of the audit log, and report the first contradiction
    #[command(after_help = "Example:\n  tidemill audit verify --from-head head.json")]
    Verify {
        /// File with a head that `tidemill audit head` printed: the log must contain that seal
        #[arg(long, value_name = "FILE")]
        from_head: Option<PathBuf>,
        /// Verify this export instead of the log of the database or the server
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// A line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ExportLine {
    /// First line of an excerpt: the seal before its first seal.
    Anchor {
        seal_no: i64,
        hash: String,
    },
    /// An entry. The entries of a seal precede it; entries that are not sealed yet are at the end.
    Entry(Box<AuditRecord>),
    Seal(AuditSeal),
}

/// Verifies an export, which needs neither a database nor a server.
pub(super) fn command_without_database(
    command: &AuditCommand,
    out: Out,
) -> Option<Result<ExitCode, Failure>> {
    match command {
        AuditCommand::Verify { from_head, file: Some(file) } => {
            Some(read_head(from_head.as_deref()).and_then(|head| {
                let tail = Tail::of(head.as_ref());
                let (verified, unsealed) = verify_file(file, head)?;
                report(&verified, unsealed, tail, out);
                Ok(ExitCode::SUCCESS)
            }))
        }
        AuditCommand::Verify { file: None, .. }
        | AuditCommand::List { .. }
        | AuditCommand::Export { .. }
        | AuditCommand::Head => None,
    }
}

pub(super) async fn command(client: Client, command: AuditCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        AuditCommand::List { limit, project } => list(&client, limit, project, out).await?,
        AuditCommand::Export { since } => {
            let since = match since {
                Some(when) => Some(when.resolve_past(client.info().await?.now)),
                None => None,
            };
            export(&client, since, out).await?;
        }
        AuditCommand::Head => out.print_json(&client.audit_head().await?),
        AuditCommand::Verify { from_head, file: _ } => {
            let head = read_head(from_head.as_deref())?;
            let tail = Tail::of(head.as_ref());
            let (verified, unsealed) = verify(&client, head).await?;
            report(&verified, unsealed, tail, out);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, limit: usize, project: Option<String>, out: Out) -> Result<(), Failure> {
    let entries = requests::read_pages(limit, async |after, limit| {
        client.audit(&ListAudit { project: project.clone(), after, limit }).await
    })
    .await?;
    if out.is_json() {
        for entry in &entries {
            out.print_json(entry);
        }
        return Ok(());
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = entries.iter().map(|entry| row(entry, now)).collect();
    out.print_table(
        &["TIME", "WHO", "ROLE", "ACTION", "OUTCOME", "OBJECT", "PROJECT", "FROM", "SEAL"],
        &rows,
    );
    Ok(())
}

fn row(entry: &AuditRecord, now: Timestamp) -> Vec<Cell> {
    let outcome = match entry.outcome {
        AuditOutcome::Applied => Cell::new(entry.outcome.to_string(), Style::Plain),
        AuditOutcome::Refused => Cell::new(entry.outcome.to_string(), Style::Warning),
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    vec![
        times::format_relative(entry.at, now).into(),
        entry.who.clone().into(),
        entry.role.as_str().into(),
        entry.action.clone().into(),
        outcome,
        text(&entry.subject).into(),
        text(&entry.project_id).into(),
        text(&entry.source).into(),
        entry.seal_no.map(|seal_no| seal_no.to_string()).unwrap_or_default().into(),
    ]
}

/// Reads the cursor of the next page.
fn cursor(next: Option<String>) -> Result<Option<i64>, Failure> {
    let Some(next) = next else { return Ok(None) };
    let position = next.parse();
    Ok(Some(position.map_err(|_| Error::InvalidResponse(format!("`{next}` is not a valid page cursor")))?))
}

async fn export(client: &Client, since: Option<Timestamp>, out: Out) -> Result<(), Failure> {
    let mut after = None;
    let mut is_first = true;
    loop {
        let Page { items, next } = client.audit_seals(&ListSeals { after, since }).await?;
        for SealedBatch { seal, entries } in items {
            let is_excerpt = seal.seal_no > 1 && seal.pruned_at.is_none();
            if std::mem::take(&mut is_first) && is_excerpt {
                let (seal_no, hash) = (seal.seal_no - 1, seal.previous.clone());
                out.print_json(&ExportLine::Anchor { seal_no, hash });
            }
            for entry in entries {
                out.print_json(&ExportLine::Entry(Box::new(entry)));
            }
            out.print_json(&ExportLine::Seal(seal));
        }
        after = cursor(next)?;
        if after.is_none() {
            break;
        }
    }
    let unsealed = requests::read_pages(usize::MAX, async |after, limit| {
        client.unsealed_audit(&ListUnsealed { after, limit }).await
    });
    for entry in unsealed.await? {
        out.print_json(&ExportLine::Entry(Box::new(entry)));
    }
    Ok(())
}

fn read_head(path: Option<&Path>) -> Result<Option<AuditHead>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let failed =
        |problem: String| Failure::usage(format!("cannot read the head `{}`: {problem}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let head = serde_json::from_str(&text).map_err(|error| {
        failed(error.to_string()).with_hint("tidemill audit head > head.json writes such a file")
    });
    head.map(Some)
}

fn broken(fault: &AuditFault) -> Failure {
    Failure::refused(format!("the audit log is not intact: {fault}")).with_code("audit_broken")
}

async fn verify(client: &Client, head: Option<AuditHead>) -> Result<(VerifiedAudit, i64), Failure> {
    let mut attempt = 1;
    loop {
        match verify_once(client, head.clone()).await? {
            Ok(verified) => return Ok(verified),
            // Retention may have removed the seals that were still to be read.
            Err(AuditFault::MissingSeal { .. }) if attempt < ATTEMPTS_MAX => attempt += 1,
            Err(fault) => return Err(broken(&fault)),
        }
    }
}

async fn verify_once(
    client: &Client,
    head: Option<AuditHead>,
) -> Result<Result<(VerifiedAudit, i64), AuditFault>, Failure> {
    let (mut verifier, mut after) = (Verifier::new(head), None);
    loop {
        let Page { items, next } = client.audit_seals(&ListSeals { after, since: None }).await?;
        for batch in &items {
            if let Err(fault) = verifier.check(batch) {
                return Ok(Err(fault));
            }
            after = Some(batch.seal.seal_no);
        }
        if next.is_some() {
            continue;
        }
        let now = client.audit_head().await?;
        // Entries may have been sealed meanwhile.
        if now.seal_no > after.unwrap_or(0) && !items.is_empty() {
            continue;
        }
        return Ok(verifier.finish(now.named_seal_no).map(|verified| (verified, now.unsealed)));
    }
}

fn verify_file(path: &Path, head: Option<AuditHead>) -> Result<(VerifiedAudit, i64), Failure> {
    let failed =
        |problem: String| Failure::usage(format!("cannot read the export `{}`: {problem}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let (mut verifier, mut entries, mut unsealed) = (Verifier::new(head), Vec::new(), 0);
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|error| failed(error.to_string()))?;
        let line: ExportLine = serde_json::from_str(&line)
            .map_err(|error| failed(format!("line {} is not a line of an export: {error}", number + 1)))?;
        match line {
            ExportLine::Anchor { seal_no, hash } => verifier = verifier.after(seal_no, hash),
            ExportLine::Entry(entry) if entry.seal_no.is_none() => unsealed += 1,
            ExportLine::Entry(entry) => entries.push(*entry),
            ExportLine::Seal(seal) => {
                let batch = SealedBatch { seal, entries: std::mem::take(&mut entries) };
                verifier.check(&batch).map_err(|fault| broken(&fault))?;
            }
        }
    }
    let named = entries.iter().filter_map(|entry| entry.seal_no).max();
    Ok((verifier.finish(named).map_err(|fault| broken(&fault))?, unsealed))
}

/// Whether an exported head was compared with the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Checked,
    Unknown,
}

impl Tail {
    const fn of(head: Option<&AuditHead>) -> Self {
        if head.is_some() { Self::Checked } else { Self::Unknown }
    }
}

fn report(verified: &VerifiedAudit, unsealed: i64, tail: Tail, out: Out) {
    if out.is_json() {
        out.print_json(&serde_json::json!({
            "intact": true, "first_seal_no": verified.first_seal_no, "last_seal_no": verified.last_seal_no,
            "hash": verified.hash, "entries": verified.entries, "unsealed": unsealed,
            "head_checked": tail == Tail::Checked,
        }));
        return;
    }
    match verified.first_seal_no {
        Some(first) => out.print(format!(
            "the audit log is intact: seals {first} to {} with {} entries; not sealed yet: {unsealed}",
            verified.last_seal_no, verified.entries
        )),
        None => out.print(format!("the audit log has no seals; not sealed yet: {unsealed}")),
    }
    if tail == Tail::Unknown {
        out.inform(
            "without --from-head, a removed tail is not noticed; keep the output of `tidemill audit head` elsewhere",
        );
    }
}
