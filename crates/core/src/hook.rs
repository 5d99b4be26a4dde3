//! Webhooks that come in: what a sender tells, and the run that follows from it.
//!
//! A decision is a pure function of the event's name, its payload and the rules of the hook. Who sent it was settled
//! before: nothing here is looked at while the signature is in doubt.

use crate::digest::sha256;
use crate::ids::{RunId, is_name};
use crate::label::labelled;
use crate::limits::{HOOK_RULES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::request::{Fault, Invalid};
use crate::run::QueueRun;
use crate::{Json, Timestamp};
use uuid::Uuid;

labelled! {
    /// Who sends, and how they sign.
    "kind of webhook" HookKind {
        /// GitHub: `push` and `workflow_dispatch`.
        Github = "github",
        /// Anybody who signs the time and the body with the shared secret.
        Generic = "generic",
    }
}

/// Which environment a branch or tag is for.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookRule {
    /// A branch, with `*` for a part of its name and `**` for any number of parts; a tag as `refs/tags/…`.
    pub pattern: String,
    /// The environment, by its name within the project.
    pub env: String,
}

/// A webhook that somebody set up.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hook {
    /// Its name, which is the last part of its address.
    pub hook: String,
    /// The project whose runs it queues.
    pub project_id: String,
    /// Who sends.
    pub kind: HookKind,
    /// The environment variable of the server that holds the secret. The secret itself is not kept.
    pub secret_env: String,
    /// Which branch is for which environment; the first that fits decides.
    pub rules: Vec<HookRule>,
    /// Since when it queues nothing, if somebody paused it.
    pub paused_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The rules of a hook that was given none.
pub fn default_rules() -> Vec<HookRule> {
    [("main", "staging"), ("release/*", "prod"), ("**", "dev")]
        .map(|(pattern, env)| HookRule { pattern: pattern.to_owned(), env: env.to_owned() })
        .into()
}

/// Bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 256;

impl Hook {
    /// Every fault of a hook that somebody wants.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut faults = Vec::new();
        let mut add = |field: &'static str, problem: String| faults.push(Fault { field, problem });
        for (field, name) in [("hook", &self.hook), ("project", &self.project_id)] {
            if !is_name(name) {
                let shown: String = name.chars().take(40).collect();
                add(field, format!("`{shown}` must be lower-case letters, digits and dashes, at most 128"));
            }
        }
        let variable = self.secret_env.as_str();
        let plain = variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if variable.is_empty() || variable.len() > NAME_BYTES_MAX || !plain {
            add("secret_env", "must be the name of an environment variable, not the secret".to_owned());
        }
        if self.rules.is_empty() || self.rules.len() > HOOK_RULES_MAX {
            add("rules", format!("are {}; a hook has 1 to {HOOK_RULES_MAX}", self.rules.len()));
        }
        for rule in &self.rules {
            if rule.pattern.is_empty() || rule.pattern.len() > PATTERN_BYTES_MAX {
                add(
                    "rules",
                    format!("have a pattern that is empty or longer than {PATTERN_BYTES_MAX} bytes"),
                );
            }
            if !is_name(&rule.env) {
                let shown: String = rule.env.chars().take(40).collect();
                add("rules", format!("name an environment `{shown}`, which no environment can be called"));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Invalid(faults)) }
    }

    /// The environment that a branch or tag is for, by the first rule that fits.
    pub fn env_of(&self, git_ref: &str) -> Option<&HookRule> {
        let branch = git_ref.strip_prefix("refs/heads/");
        self.rules.iter().find(|rule| {
            let pattern = rule.pattern.as_str();
            match branch {
                Some(branch) => fits(pattern.strip_prefix("refs/heads/").unwrap_or(pattern), branch),
                // A tag only fits a rule that speaks of refs: `**` means every branch.
                None if git_ref.starts_with("refs/") => {
                    pattern.starts_with("refs/") && fits(pattern, git_ref)
                }
                None => fits(pattern, git_ref),
            }
        })
    }
}

/// What follows from a delivery.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// This run.
    Queue(Box<QueueRun>),
    /// Nothing, and why.
    Ignore(String),
}

/// What follows from a delivery of GitHub that was signed by the right secret.
pub fn decide(hook: &Hook, event: &str, delivery: &str, payload: &Json) -> Result<Decision, Invalid> {
    match event {
        "push" | "workflow_dispatch" => {}
        other => {
            let shown: String = other.chars().take(40).collect();
            return Ok(Decision::Ignore(format!("events of the kind `{shown}` queue nothing")));
        }
    }
    let Some(git_ref) = payload.get("ref").and_then(Json::as_str).filter(|text| !text.is_empty()) else {
        return Err(fault("ref", "is missing: it says which branch or tag was pushed"));
    };
    if git_ref.len() > KEY_BYTES_MAX {
        return Err(fault("ref", "is longer than a branch can be called"));
    }
    if payload.get("deleted").and_then(Json::as_bool) == Some(true) {
        return Ok(Decision::Ignore(format!("`{git_ref}` was deleted, and there is nothing to run")));
    }
    // A dispatch may name a branch without its prefix; a push never does.
    let full =
        if git_ref.starts_with("refs/") { git_ref.to_owned() } else { format!("refs/heads/{git_ref}") };
    let Some(rule) = hook.env_of(&full) else {
        return Ok(Decision::Ignore(format!("no rule of hook {} fits `{git_ref}`", hook.hook)));
    };
    let sha = payload.get("after").and_then(Json::as_str);
    if event == "push" && !sha.is_some_and(is_sha) {
        return Err(fault("after", "must be the commit that was pushed, as 40 or 64 hexadecimal digits"));
    }
    let mut run = QueueRun::new(hook.project_id.as_str(), rule.env.as_str());
    run.git_sha = sha.filter(|_| event == "push").map(str::to_owned);
    run.git_ref = Some(full.strip_prefix("refs/heads/").unwrap_or(&full).to_owned());
    run.idempotency_key = Some(format!("github:{delivery}"));
    run.metadata = metadata(hook, event, delivery, payload);
    Ok(Decision::Queue(Box::new(run)))
}

/// What a signed body of anybody else asks for: a run without its project, and perhaps without its environment.
///
/// The body with both filled in, to be read as any request for a run is.
pub fn fill_in(hook: &Hook, body: Json) -> Result<Json, Invalid> {
    let Json::Object(mut fields) = body else {
        return Err(fault("body", "must be a JSON object that describes a run"));
    };
    if fields.contains_key("project") {
        return Err(fault("project", "is not yours to say: the hook belongs to one"));
    }
    if !fields.contains_key("env") {
        let git_ref = fields.get("git_ref").and_then(Json::as_str);
        let Some(git_ref) = git_ref else {
            return Err(fault("env", "is missing, and there is no git_ref that a rule could fit"));
        };
        let Some(rule) = hook.env_of(git_ref) else {
            return Err(fault("env", "is missing, and no rule of the hook fits the git_ref"));
        };
        fields.insert("env".to_owned(), rule.env.clone().into());
    }
    fields.insert("project".to_owned(), hook.project_id.clone().into());
    Ok(Json::Object(fields))
}

/// The id of the run that a signed delivery asks for. It follows from what was signed alone, so that the same delivery
/// is the same run under whatever key somebody sends it again: the key is not signed.
pub fn run_of(hook: &Hook, signed_at: Timestamp, signature: &str) -> RunId {
    // Digits of either case are the same signature.
    let text = format!("{}:{}", hook.hook, signature.to_ascii_lowercase());
    let mut entropy = [0; 16];
    entropy.copy_from_slice(&sha256(text.as_bytes())[..16]);
    RunId::new(signed_at, Uuid::from_bytes(entropy))
}

fn fault(field: &'static str, problem: &str) -> Invalid {
    Invalid(vec![Fault { field, problem: problem.to_owned() }])
}

fn is_sha(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Bytes of a text that is taken over from a payload.
const TEXT_BYTES_MAX: usize = 512;
/// Bytes of the inputs of a dispatch, as JSON text.
const INPUTS_BYTES_MAX: usize = 32 * 1024;

/// What the worker may want to know of the sender; bounded, whatever the payload holds.
fn metadata(hook: &Hook, event: &str, delivery: &str, payload: &Json) -> Json {
    let mut told = serde_json::Map::new();
    let mut put = |name: &str, value: Option<&str>| {
        if let Some(text) = value {
            told.insert(name.to_owned(), shortened(text).into());
        }
    };
    put("hook", Some(&hook.hook));
    put("event", Some(event));
    put("delivery", Some(delivery));
    put("repository", payload.pointer("/repository/full_name").and_then(Json::as_str));
    put("sender", payload.pointer("/sender/login").and_then(Json::as_str));
    put("workflow", payload.get("workflow").and_then(Json::as_str));
    put("compare", payload.get("compare").and_then(Json::as_str));
    let message = payload.pointer("/head_commit/message").and_then(Json::as_str);
    put("commit_message", message.map(|text| text.lines().next().unwrap_or_default()));
    if let Some(inputs) = payload.get("inputs").filter(|inputs| inputs.is_object()) {
        let text = inputs.to_string();
        if text.len() <= INPUTS_BYTES_MAX && !text.contains("\\u0000") {
            told.insert("inputs".to_owned(), inputs.clone());
        }
    }
    serde_json::json!({ "github": told })
}

fn shortened(text: &str) -> String {
    let mut short = String::new();
    for letter in text.chars().filter(|letter| *letter != '\0') {
        if short.len() + letter.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        short.push(letter);
    }
    short
}

/// Whether a pattern fits a name: `*` stands for anything within a part, `**` for anything.
///
/// Its work is bounded by the product of the two lengths, whatever the pattern is.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // The places of the name that the pattern read so far can end at.
    let mut ends = vec![false; name.len() + 1];
    ends[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let mut next = vec![false; name.len() + 1];
        if pattern[at] == b'*' {
            let deep = pattern.get(at + 1) == Some(&b'*');
            let mut open = false;
            for place in 0..=name.len() {
                open = ends[place] || (open && (deep || name[place - 1] != b'/'));
                next[place] = open;
            }
            at += if deep { 2 } else { 1 };
        } else {
            for place in 0..name.len() {
                next[place + 1] = ends[place] && name[place] == pattern[at];
            }
            at += 1;
        }
        ends = next;
    }
    ends[name.len()]
}

#[cfg(test)]
mod tests;
