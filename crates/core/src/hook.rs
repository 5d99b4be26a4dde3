//! Incoming webhooks: their rules, and the decision which run a delivery queues.
//!
//! The decision is a pure function of the event's name, its payload and the rules of the hook. Callers verify the
//! signature before they call it.

use crate::digest::sha256;
use crate::glob::Glob;
use crate::ids::{RunId, is_name};
use crate::label::labelled;
use crate::limits::{HOOK_RULES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::reach::DefinedBy;
use crate::request::{FieldError, ValidationError};
use crate::run::QueueRun;
use crate::{Json, Timestamp};
use uuid::Uuid;

labelled! {
    /// The type of a webhook's sender, which determines the signature scheme.
    "kind of webhook" HookKind {
        /// GitHub: `push` and `workflow_dispatch`.
        Github = "github",
        /// Any sender that signs the time and the body with the shared secret.
        Generic = "generic",
    }
}

/// A rule that maps branches or tags to an environment.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookRule {
    /// Branch pattern: `*` matches within one path component, `**` matches any components; tags begin with
    /// `refs/tags/`.
    pub pattern: String,
    /// Name of the environment within the project.
    pub env: String,
}

/// A webhook that queues runs of one project.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hook {
    /// Name of the webhook, which is the last part of its URL.
    pub hook: String,
    /// Project whose runs it queues.
    pub project_id: String,
    /// Type of the sender.
    pub kind: HookKind,
    /// Environment variable of the server that contains the secret. The secret itself is not stored.
    pub secret_env: String,
    /// Rules for the environment; the first match applies.
    pub rules: Vec<HookRule>,
    /// Author of this definition. The lists of the section `reach` apply to definitions of projects.
    pub defined_by: DefinedBy,
    /// Time at which it was paused; null if it is active.
    pub paused_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// Returns the rules of a hook without rules of its own.
pub fn default_rules() -> Vec<HookRule> {
    [("main", "staging"), ("release/*", "prod"), ("**", "dev")]
        .map(|(pattern, env)| HookRule { pattern: pattern.to_owned(), env: env.to_owned() })
        .into()
}

/// Maximum length of a branch pattern.
const PATTERN_BYTES_MAX: usize = 256;

impl Hook {
    /// Checks the hook and reports all errors.
    pub fn check(&self) -> Result<(), ValidationError> {
        let mut errors = Vec::new();
        let mut add = |field: &'static str, problem: String| errors.push(FieldError { field, problem });
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
            add("rules", format!("are {}; there must be 1 to {HOOK_RULES_MAX}", self.rules.len()));
        }
        for rule in &self.rules {
            if rule.pattern.is_empty() || rule.pattern.len() > PATTERN_BYTES_MAX {
                add(
                    "rules",
                    format!("contain a pattern that is empty or longer than {PATTERN_BYTES_MAX} bytes"),
                );
            }
            if !is_name(&rule.env) {
                let shown: String = rule.env.chars().take(40).collect();
                add("rules", format!("contain `{shown}`, which is not a valid environment name"));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(ValidationError(errors)) }
    }

    /// Returns whether another definition verifies deliveries with the same secret, in the same way.
    pub fn has_same_reach(&self, other: &Self) -> bool {
        (&self.project_id, self.kind, &self.secret_env) == (&other.project_id, other.kind, &other.secret_env)
    }

    /// Returns the first rule that matches a branch or tag.
    pub fn env_of(&self, git_ref: &str) -> Option<&HookRule> {
        let branch = git_ref.strip_prefix("refs/heads/");
        self.rules.iter().find(|rule| {
            let pattern = rule.pattern.as_str();
            match branch {
                Some(branch) => matches(pattern.strip_prefix("refs/heads/").unwrap_or(pattern), branch),
                // A tag matches only rules that begin with `refs/`: `**` means every branch.
                None if git_ref.starts_with("refs/") => {
                    pattern.starts_with("refs/") && matches(pattern, git_ref)
                }
                None => matches(pattern, git_ref),
            }
        })
    }
}

/// The decision about a delivery.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Queue(Box<QueueRun>),
    /// Queue nothing, for this reason.
    Ignore(String),
}

/// Returns the event that a signed body describes, if it is one that queues runs.
///
/// GitHub signs the body, but not the header with the name of the event.
fn event_of(payload: &Json) -> Option<&'static str> {
    let text = |name: &str| payload.get(name).is_some_and(Json::is_string);
    let has = |name: &str| payload.get(name).is_some();
    if text("ref") && text("before") && text("after") && payload.get("commits").is_some_and(Json::is_array) {
        return Some("push");
    }
    let is_dispatch = text("ref") && text("workflow") && has("inputs") && !has("before") && !has("commits");
    is_dispatch.then_some("workflow_dispatch")
}

/// Decides about a delivery from GitHub whose signature is valid. `event` is the unsigned name in its header, which
/// must agree with the body.
pub fn decide(hook: &Hook, event: &str, delivery: &str, payload: &Json) -> Result<Decision, ValidationError> {
    let shown: String = event.chars().take(40).collect();
    match (event, event_of(payload)) {
        (header, Some(body)) if header == body => {}
        ("push" | "workflow_dispatch", _) | (_, Some(_)) => {
            let problem = format!("is `{shown}`, but the signed body is not such an event");
            return Err(field_error("X-GitHub-Event", &problem));
        }
        (_, None) => return Ok(Decision::Ignore(format!("event `{shown}` queues no run"))),
    }
    let Some(git_ref) = payload.get("ref").and_then(Json::as_str).filter(|text| !text.is_empty()) else {
        return Err(field_error("ref", "is missing; it must name the branch or tag"));
    };
    if git_ref.len() > KEY_BYTES_MAX {
        return Err(field_error("ref", "is too long for the name of a branch"));
    }
    if payload.get("deleted").and_then(Json::as_bool) == Some(true) {
        return Ok(Decision::Ignore(format!("`{git_ref}` was deleted")));
    }
    // A dispatch may name a branch without the prefix `refs/heads/`; a push never does.
    let full =
        if git_ref.starts_with("refs/") { git_ref.to_owned() } else { format!("refs/heads/{git_ref}") };
    let Some(rule) = hook.env_of(&full) else {
        return Ok(Decision::Ignore(format!("no rule of hook {} matches `{git_ref}`", hook.hook)));
    };
    let sha = payload.get("after").and_then(Json::as_str);
    if event == "push" && !sha.is_some_and(is_sha) {
        return Err(field_error(
            "after",
            "must be the commit that was pushed, as 40 or 64 hexadecimal digits",
        ));
    }
    let mut run = QueueRun::new(hook.project_id.as_str(), rule.env.as_str());
    run.git_sha = sha.filter(|_| event == "push").map(str::to_owned);
    run.git_ref = Some(full.strip_prefix("refs/heads/").unwrap_or(&full).to_owned());
    run.idempotency_key = Some(format!("github:{delivery}"));
    run.metadata = metadata(hook, event, delivery, payload);
    Ok(Decision::Queue(Box::new(run)))
}

/// Completes the body of a generic delivery with the project and, if missing, the environment.
///
/// The result has the format of every request for a run.
pub fn fill_in(hook: &Hook, body: Json) -> Result<Json, ValidationError> {
    let Json::Object(mut fields) = body else {
        return Err(field_error("body", "must be a JSON object that describes a run"));
    };
    if fields.contains_key("project") {
        return Err(field_error("project", "must be omitted: the hook determines the project"));
    }
    if !fields.contains_key("env") {
        let git_ref = fields.get("git_ref").and_then(Json::as_str);
        let Some(git_ref) = git_ref else {
            return Err(field_error("env", "is missing, and there is no git_ref for the rules to match"));
        };
        let Some(rule) = hook.env_of(git_ref) else {
            return Err(field_error("env", "is missing, and no rule of the hook matches the git_ref"));
        };
        fields.insert("env".to_owned(), rule.env.clone().into());
    }
    fields.insert("project".to_owned(), hook.project_id.clone().into());
    Ok(Json::Object(fields))
}

/// Returns the id of the run for a signed delivery. It depends only on signed data, so that a replayed delivery
/// yields the same run even with another idempotency key, which is not signed.
pub fn run_of(hook: &Hook, signed_at: Timestamp, signature: &str) -> RunId {
    // Upper-case and lower-case digits are the same signature.
    let text = format!("{}:{}", hook.hook, signature.to_ascii_lowercase());
    let mut entropy = [0; 16];
    entropy.copy_from_slice(&sha256(text.as_bytes())[..16]);
    RunId::new(signed_at, Uuid::from_bytes(entropy))
}

fn field_error(field: &'static str, problem: &str) -> ValidationError {
    ValidationError(vec![FieldError { field, problem: problem.to_owned() }])
}

fn is_sha(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Length to which texts from a payload are cut.
const TEXT_BYTES_MAX: usize = 512;
/// Largest inputs of a dispatch, as JSON text.
const INPUTS_BYTES_MAX: usize = 32 * 1024;

/// Returns the metadata for the worker, bounded in size.
fn metadata(hook: &Hook, event: &str, delivery: &str, payload: &Json) -> Json {
    let mut fields = serde_json::Map::new();
    let mut put = |name: &str, value: Option<&str>| {
        if let Some(text) = value {
            fields.insert(name.to_owned(), truncate(text).into());
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
            fields.insert("inputs".to_owned(), inputs.clone());
        }
    }
    serde_json::json!({ "github": fields })
}

fn truncate(text: &str) -> String {
    let mut short = String::new();
    for letter in text.chars().filter(|letter| *letter != '\0') {
        if short.len() + letter.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        short.push(letter);
    }
    short
}

fn matches(pattern: &str, name: &str) -> bool {
    Glob::new(pattern).matches(name)
}

#[cfg(test)]
mod tests;
