//! Which runs a list shows.

use crate::times::{self, When};
use clap::Args;
use tidemill_core::RunId;
use tidemill_core::limits::GRAPH_NAME_CHARS_MAX;
use tidemill_core::run::{Lane, RunState};

/// Which runs a list shows. Several options together must all fit.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunList {
    /// Of this project.
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// Of this environment.
    #[arg(long)]
    pub(crate) env: Option<String>,
    /// In this state.
    #[arg(long)]
    pub(crate) status: Option<RunState>,
    /// The same as --status. It is an option of its own, so that what is wrong with it is said in its name.
    #[arg(long, conflicts_with = "status")]
    pub(crate) state: Option<RunState>,
    /// Of this lane: ops, graph or sync.
    #[arg(long)]
    pub(crate) lane: Option<Lane>,
    /// Runs of syncs of this feed.
    #[arg(long)]
    pub(crate) feed: Option<String>,
    /// Queued at this time or later: a time, or a duration before now such as 2h.
    #[arg(long, value_parser = times::when, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Queued before this time: a time, or a duration before now such as 30m.
    #[arg(long, value_parser = times::when, value_name = "TIME")]
    pub(crate) until: Option<When>,
    /// With an id that begins so; `run-` may be left out.
    #[arg(long, value_parser = id_prefix, value_name = "PREFIX")]
    pub(crate) id: Option<String>,
    /// On a commit whose name begins so; four characters at the least.
    #[arg(long, value_parser = sha_prefix, value_name = "PREFIX")]
    pub(crate) sha: Option<String>,
    /// On a branch or tag whose name begins so.
    #[arg(long = "ref", value_parser = ref_prefix, value_name = "PREFIX")]
    pub(crate) git_ref: Option<String>,
    /// With a name that begins so: that of its graph, or of the feed of its sync.
    #[arg(long, value_parser = name_prefix, value_name = "PREFIX")]
    pub(crate) name: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Older than this run: the last one of the page before.
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<RunId>,
}

/// The beginning of an id, with or without what all of them begin with.
fn id_prefix(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("run-").unwrap_or(text);
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !text.is_empty() && rest.len() <= 60 && rest.bytes().all(fits) {
        return Ok(format!("run-{rest}"));
    }
    Err("an id is `run-` and then small letters, digits and hyphens".to_owned())
}

/// The beginning of the name of a commit.
fn sha_prefix(text: &str) -> Result<String, String> {
    let is_long_enough = (4..=1024).contains(&text.len());
    if is_long_enough { Ok(text.to_owned()) } else { Err("give four characters of it, or more".to_owned()) }
}

/// The beginning of the name of a graph or a feed.
fn name_prefix(text: &str) -> Result<String, String> {
    let fits = (1..=GRAPH_NAME_CHARS_MAX).contains(&text.chars().count());
    if fits { Ok(text.to_owned()) } else { Err(format!("give 1 to {GRAPH_NAME_CHARS_MAX} characters of it")) }
}

/// The beginning of the name of a branch or tag.
fn ref_prefix(text: &str) -> Result<String, String> {
    let fits = (1..=1024).contains(&text.len());
    if fits { Ok(text.to_owned()) } else { Err("give 1 to 1024 characters of it".to_owned()) }
}

#[cfg(test)]
mod tests {
    use crate::args::Arguments;
    use clap::Parser as _;

    #[test]
    fn what_is_wrong_with_a_state_is_said_of_the_option_as_it_was_typed() {
        let said = |option: &str| {
            let words = ["tidemill", "run", "list", option, "done"];
            Arguments::try_parse_from(words).expect_err("there is no such state").to_string()
        };
        assert!(said("--state").contains("'--state <"), "{}", said("--state"));
        assert!(said("--status").contains("'--status <"), "{}", said("--status"));
        for option in ["--state", "--status"] {
            let words = ["tidemill", "run", "list", option, "failed"];
            assert!(Arguments::try_parse_from(words).is_ok(), "{option}");
        }
    }
}

/// The stalled run to fail.
#[derive(Debug, Args)]
pub(crate) struct RunFail {
    /// The run.
    pub(crate) id: RunId,
    /// Queue a successor that carries the request on.
    #[arg(long)]
    pub(crate) retry: bool,
    /// Reason to record with the run.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}
