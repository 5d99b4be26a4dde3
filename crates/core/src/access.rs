//! Who may do what: roles, and what each of them is for.

use crate::label::labelled;

labelled! {
    /// What the holder of a token may do.
    "role" Role {
        /// Look at everything.
        Viewer = "viewer",
        /// Look, and queue, cancel, retry, pause and the like.
        Operator = "operator",
        /// Claim runs, report on them and finish them.
        Worker = "worker",
        /// Carry out tasks of graphs.
        Agent = "agent",
        /// Everything, tokens and audit included.
        Admin = "admin",
    }
}
