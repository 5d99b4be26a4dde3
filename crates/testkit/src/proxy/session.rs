//! The state of one proxied connection, and the decision about each message.
//!
//! No I/O: messages in, decisions out. A statement runs with its Execute or Query message; Parse and Bind only provide
//! its text. A commit is detected by the tag `COMMIT`, or, in autocommit, by the ReadyForQuery that ends the batch:
//! CommandComplete is too early there, because the server commits only at Sync.

use std::collections::HashMap;
use std::sync::Arc;

use super::wire::Frame;
use super::{Action, Trigger};

/// Decision about a message of the client.
#[derive(Debug)]
pub(super) enum FromClient {
    Pass,
    /// Cut both connections without forwarding the message.
    Cut,
    /// Wait until this fault is released, then forward the message.
    Stall(Arc<Trigger>),
}

/// Decision about a message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromServer {
    /// Forward the held messages, then this one.
    Pass,
    /// Hold the message back.
    Hold,
    /// Cut both connections without forwarding this or held messages.
    Cut,
}

/// A statement that a fault matches, from its sending to the end of its transaction.
#[derive(Debug)]
struct Mark {
    trigger: Arc<Trigger>,
    /// Number of the ReadyForQuery that answers the statement.
    answered_by: u64,
    /// Whether the statement ran in a transaction block that is still open.
    in_block: bool,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Session {
    /// Text of each prepared statement, by name.
    statements: HashMap<Vec<u8>, String>,
    /// Text of the statement behind each portal, by name.
    portals: HashMap<Vec<u8>, String>,
    /// Number of ReadyForQuery messages that the client has requested; the start-up requests the first.
    readies_asked: u64,
    /// Number of ReadyForQuery messages that the server has sent.
    readies_sent: u64,
    /// Whether the current batch has failed or rolled back.
    undone: bool,
    marks: Vec<Mark>,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            statements: HashMap::new(),
            portals: HashMap::new(),
            readies_asked: 1,
            readies_sent: 0,
            undone: false,
            marks: Vec::new(),
        }
    }
}

impl Session {
    /// Tracks a message of the client and decides about it.
    pub(super) fn client_sends(&mut self, frame: &Frame, triggers: &[Arc<Trigger>]) -> FromClient {
        let mut strings = frame.strings();
        let mut string = || strings.next().unwrap_or_default();
        match frame.kind() {
            b'Q' => {
                let sql = String::from_utf8_lossy(string()).into_owned();
                let step = self.statement(&sql, triggers);
                self.readies_asked += 1;
                step
            }
            b'P' => {
                let (name, sql) = (string().to_vec(), string());
                self.statements.insert(name, String::from_utf8_lossy(sql).into_owned());
                FromClient::Pass
            }
            b'B' => {
                let (portal, statement) = (string().to_vec(), string());
                let sql = self.statements.get(statement).cloned().unwrap_or_default();
                self.portals.insert(portal, sql);
                FromClient::Pass
            }
            b'E' => {
                let sql = self.portals.get(string()).cloned().unwrap_or_default();
                self.statement(&sql, triggers)
            }
            b'C' => {
                match string().split_first() {
                    Some((b'S', name)) => drop(self.statements.remove(name)),
                    Some((b'P', name)) => drop(self.portals.remove(name)),
                    Some(_) | None => {}
                }
                FromClient::Pass
            }
            b'S' | b'F' => {
                self.readies_asked += 1;
                FromClient::Pass
            }
            _ => FromClient::Pass,
        }
    }

    /// Decides about a statement that is about to run.
    fn statement(&mut self, sql: &str, triggers: &[Arc<Trigger>]) -> FromClient {
        for trigger in triggers.iter().filter(|trigger| trigger.concerns(sql)) {
            match trigger.fault.action {
                Action::CutBefore if trigger.fire() => return FromClient::Cut,
                Action::Stall if trigger.fire() => return FromClient::Stall(Arc::clone(trigger)),
                Action::CutBefore | Action::Stall => {}
                Action::CutAfterCommit => self.marks.push(Mark {
                    trigger: Arc::clone(trigger),
                    answered_by: self.readies_asked + 1,
                    in_block: false,
                }),
            }
        }
        FromClient::Pass
    }

    /// Tracks a message of the server and decides about it.
    pub(super) fn server_sends(&mut self, frame: &Frame, triggers: &[Arc<Trigger>]) -> FromServer {
        let cut = match frame.kind() {
            b'C' => match frame.strings().next() {
                Some(b"COMMIT") => self.committed(triggers),
                Some(b"ROLLBACK") => {
                    self.undone = true;
                    false
                }
                Some(_) | None => false,
            },
            b'E' => {
                self.undone = true;
                false
            }
            b'Z' => self.ready(frame.body().first().copied()),
            _ => false,
        };
        if cut {
            FromServer::Cut
        } else if self.marks.iter().any(|mark| !mark.in_block) {
            FromServer::Hold
        } else {
            FromServer::Pass
        }
    }

    /// Handles the commit of a transaction block; returns whether to cut.
    fn committed(&mut self, triggers: &[Arc<Trigger>]) -> bool {
        let answering = self.readies_sent + 1;
        let (ended, later) = self.marks.drain(..).partition(|mark| mark.answered_by <= answering);
        self.marks = later;
        let ended: Vec<Mark> = ended;
        let any = triggers.iter().filter(|trigger| {
            trigger.fault.action == Action::CutAfterCommit && trigger.fault.substring.is_none()
        });
        // Every fault must count the match, so no short circuit.
        fire_all(any.chain(ended.iter().map(|mark| &mark.trigger)))
    }

    /// Handles the end of a batch; returns whether to cut.
    fn ready(&mut self, status: Option<u8>) -> bool {
        self.readies_sent += 1;
        let undone = std::mem::take(&mut self.undone);
        let answered = self.readies_sent;
        let (ended, mut later): (Vec<Mark>, Vec<Mark>) = self.marks.drain(..).partition(|mark| {
            mark.answered_by <= answered && (status == Some(b'I') || (undone && !mark.in_block))
        });
        for mark in later.iter_mut().filter(|mark| mark.answered_by <= answered) {
            mark.in_block = true;
        }
        self.marks = later;
        // Statements in a block were either committed, which was handled before, or rolled back.
        fire_all(ended.iter().filter(|mark| !mark.in_block && !undone).map(|mark| &mark.trigger))
    }
}

/// Counts one match for each distinct fault; returns whether any of them acts.
fn fire_all<'a>(triggers: impl Iterator<Item = &'a Arc<Trigger>>) -> bool {
    let mut distinct: Vec<&Arc<Trigger>> = Vec::new();
    for trigger in triggers {
        if !distinct.iter().any(|known| Arc::ptr_eq(known, trigger)) {
            distinct.push(trigger);
        }
    }
    distinct.iter().filter(|trigger| trigger.fire()).count() > 0
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::super::wire::frame;
    use super::super::{Fault, Progress};
    use super::*;

    fn armed(fault: Fault) -> Vec<Arc<Trigger>> {
        vec![Arc::new(Trigger { fault, progress: watch::Sender::new(Progress::default()) })]
    }

    fn started(triggers: &[Arc<Trigger>]) -> Session {
        let mut session = Session::default();
        assert_eq!(session.server_sends(&frame(b'Z', b"I"), triggers), FromServer::Pass);
        session
    }

    fn server(session: &mut Session, triggers: &[Arc<Trigger>], messages: &[(u8, &[u8])]) -> Vec<FromServer> {
        messages.iter().map(|(kind, body)| session.server_sends(&frame(*kind, body), triggers)).collect()
    }

    #[test]
    fn a_prepared_statement_is_known_by_its_name() {
        let triggers = armed(Fault::cut_before("UPDATE run"));
        let mut session = started(&triggers);
        for (kind, body) in
            [(b'P', b"s1\0UPDATE run SET x = 1\0\0\0".as_slice()), (b'S', b""), (b'B', b"\0s1\0")]
        {
            assert!(matches!(session.client_sends(&frame(kind, body), &triggers), FromClient::Pass));
        }
        assert!(matches!(session.client_sends(&frame(b'E', b"\0\0\0\0\0"), &triggers), FromClient::Cut));
    }

    #[test]
    fn autocommit_cut_waits_for_ready_and_drops_the_response() {
        let triggers = armed(Fault::cut_after_commit_of("INSERT"));
        let mut session = started(&triggers);
        session.client_sends(&frame(b'Q', b"INSERT INTO t\0"), &triggers);
        let steps = server(&mut session, &triggers, &[(b'C', b"INSERT 0 1\0"), (b'Z', b"I")]);
        assert_eq!(steps, [FromServer::Hold, FromServer::Cut]);
    }

    #[test]
    fn a_failed_statement_is_no_commit() {
        let triggers = armed(Fault::cut_after_commit_of("INSERT"));
        let mut session = started(&triggers);
        session.client_sends(&frame(b'Q', b"INSERT INTO t\0"), &triggers);
        let steps = server(&mut session, &triggers, &[(b'E', b"SERROR\0\0"), (b'Z', b"I")]);
        assert_eq!(steps, [FromServer::Hold, FromServer::Pass]);
        assert_eq!(triggers[0].progress.borrow().seen, 0);
    }

    #[test]
    fn transaction_cut_happens_at_commit_not_rollback() {
        for (tag, last) in [(b"COMMIT\0".as_slice(), FromServer::Cut), (b"ROLLBACK\0", FromServer::Pass)] {
            let triggers = armed(Fault::cut_after_commit_of("INSERT"));
            let mut session = started(&triggers);
            session.client_sends(&frame(b'Q', b"INSERT INTO t\0"), &triggers);
            let steps = server(&mut session, &triggers, &[(b'C', b"INSERT 0 1\0"), (b'Z', b"T")]);
            assert_eq!(steps, [FromServer::Hold, FromServer::Pass]);
            session.client_sends(&frame(b'Q', b"END\0"), &triggers);
            assert_eq!(server(&mut session, &triggers, &[(b'C', tag)]), [last]);
            if tag == b"ROLLBACK\0" {
                assert_eq!(server(&mut session, &triggers, &[(b'Z', b"I")]), [FromServer::Pass]);
                assert_eq!(triggers[0].progress.borrow().seen, 0);
            }
        }
    }

    #[test]
    fn the_answer_to_an_earlier_batch_is_not_taken_for_the_commit() {
        let triggers = armed(Fault::cut_after_commit_of("INSERT"));
        let mut session = started(&triggers);
        session.client_sends(&frame(b'Q', b"ROLLBACK\0"), &triggers);
        session.client_sends(&frame(b'Q', b"INSERT INTO t\0"), &triggers);
        let steps = server(&mut session, &triggers, &[(b'C', b"ROLLBACK\0"), (b'Z', b"I")]);
        assert_eq!(steps, [FromServer::Hold, FromServer::Hold]);
        let steps = server(&mut session, &triggers, &[(b'C', b"INSERT 0 1\0"), (b'Z', b"I")]);
        assert_eq!(steps, [FromServer::Hold, FromServer::Cut]);
    }
}
