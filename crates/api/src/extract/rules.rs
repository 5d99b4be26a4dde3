//! Rules between the fields of a request, which its JSON schema cannot express.

use crate::error::to_wire_error;
use tidemill_core::feed::REST_KIND;
use tidemill_core::request::{self, ValidationError};
use tidemill_wire::FieldError;
use tidemill_wire::claims::ClaimRequest;
use tidemill_wire::feeds::PutFeed;
use tidemill_wire::rules::{ImportRules, NewRule};
use tidemill_wire::runs::{NewRun, NewRuns};
use tidemill_wire::schedules::PutSchedule;
use tidemill_wire::workers::RegisterWorker;

/// Request with rules between its fields.
pub(crate) trait Validate {
    fn validate(&self) -> Vec<FieldError>;
}

/// Converts validation errors of the core to the API's field names, with a path prefix.
fn with_prefix(path: &str, checked: Result<(), ValidationError>) -> Vec<FieldError> {
    let errors = checked.err().map(|invalid| invalid.0).unwrap_or_default();
    let with_path = |error: FieldError| FieldError { field: format!("{path}{}", error.field), ..error };
    errors.into_iter().map(to_wire_error).map(with_path).collect()
}

impl Validate for NewRun {
    fn validate(&self) -> Vec<FieldError> {
        with_prefix("", self.clone().into_request(None).check())
    }
}

impl Validate for NewRuns {
    fn validate(&self) -> Vec<FieldError> {
        let check = |(position, run): (usize, &tidemill_wire::runs::BatchRun)| {
            let (request, _) = run.clone().into_request();
            let errors = with_prefix(&format!("runs[{position}]."), request.check()).into_iter();
            // The name of the header for a single request.
            errors.map(|error| FieldError {
                field: error.field.replace("Idempotency-Key", "idempotency_key"),
                ..error
            })
        };
        self.runs.iter().enumerate().flat_map(check).collect()
    }
}

impl Validate for ClaimRequest {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = with_prefix("", request::check_worker_name(&self.worker));
        errors.extend(with_prefix("", request::check_labels(&self.labels)));
        errors
    }
}

impl Validate for RegisterWorker {
    fn validate(&self) -> Vec<FieldError> {
        let name_errors = with_prefix("", request::check_worker_name(&self.name)).into_iter();
        let mut errors: Vec<FieldError> =
            name_errors.map(|error| FieldError { field: "name".to_owned(), ..error }).collect();
        errors.extend(with_prefix("", request::check_labels(&self.labels)));
        errors
    }
}

impl Validate for PutSchedule {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = with_prefix("request.", self.request.clone().into_request(None).check());
        if let Err(bad) = tidemill_core::schedule::Pattern::parse(&self.cron, &self.time_zone) {
            errors.push(FieldError { field: "cron".to_owned(), problem: format!("is invalid: {bad}") });
        }
        errors
    }
}

impl Validate for NewRule {
    fn validate(&self) -> Vec<FieldError> {
        with_prefix("", self.clone().with_id(0).check())
    }
}

impl Validate for ImportRules {
    fn validate(&self) -> Vec<FieldError> {
        let each = self.rules.iter().enumerate();
        each.flat_map(|(at, rule)| with_prefix(&format!("rules[{at}]."), rule.clone().with_id(0).check()))
            .collect()
    }
}

impl Validate for PutFeed {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if !self.settings.is_object() {
            let problem = "must be an object".to_owned();
            errors.push(FieldError { field: "settings".to_owned(), problem });
        }
        errors.extend(check_source(self));
        for (field, cron) in [("schedule", &self.schedule), ("full_schedule", &self.full_schedule)] {
            if let Some(cron) = cron
                && let Err(bad) = tidemill_core::schedule::Pattern::parse(cron, &self.time_zone)
            {
                errors.push(FieldError { field: field.to_owned(), problem: format!("is invalid: {bad}") });
            }
        }
        errors
    }
}

/// Checks that a feed has either a definition, or an endpoint and the settings of its type.
fn check_source(put: &PutFeed) -> Vec<FieldError> {
    let error =
        |field: &str, problem: &str| FieldError { field: field.to_owned(), problem: problem.to_owned() };
    if put.definition.is_none() {
        let mut errors = Vec::new();
        if put.kind == REST_KIND {
            errors.push(error("definition", "is required for the type `rest`"));
        } else if put.endpoint.is_empty() {
            errors.push(error("endpoint", "is required without a definition"));
        }
        return errors;
    }
    let has_settings = put.settings.as_object().is_some_and(|settings| !settings.is_empty());
    [
        ("endpoint", !put.endpoint.is_empty()),
        ("username", put.username.is_some()),
        ("password_env", put.password_env.is_some()),
        ("settings", has_settings),
    ]
    .into_iter()
    .filter(|(_, is_given)| *is_given)
    .map(|(field, _)| error(field, "must be absent if `definition` is given"))
    .collect()
}
