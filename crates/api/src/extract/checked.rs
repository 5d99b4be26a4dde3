//! What the form of a request cannot say: rules between its fields. They are reported with what is wrong with the form.

use crate::answer::said;
use tidemill_core::request::{self, Invalid};
use tidemill_wire::Fault;
use tidemill_wire::claims::Ask;
use tidemill_wire::feeds::PutFeed;
use tidemill_wire::rules::{ImportRules, NewRule};
use tidemill_wire::runs::NewRun;
use tidemill_wire::schedules::PutSchedule;
use tidemill_wire::workers::Register;

/// A request with rules of its own.
pub(crate) trait Check {
    /// Everything that is wrong with it, besides its form.
    fn check(&self) -> Vec<Fault>;
}

/// The faults of core, in the words of the wire, below a field.
fn below(path: &str, checked: Result<(), Invalid>) -> Vec<Fault> {
    let faults = checked.err().map(|invalid| invalid.0).unwrap_or_default();
    let placed = |fault: Fault| Fault { field: format!("{path}{}", fault.field), ..fault };
    faults.into_iter().map(said).map(placed).collect()
}

impl Check for NewRun {
    fn check(&self) -> Vec<Fault> {
        below("", self.clone().keyed(None).check())
    }
}

impl Check for Ask {
    fn check(&self) -> Vec<Fault> {
        let mut faults = below("", request::check_worker_name(&self.worker));
        faults.extend(below("", request::check_labels(&self.labels)));
        faults
    }
}

impl Check for Register {
    fn check(&self) -> Vec<Fault> {
        let named = below("", request::check_worker_name(&self.name)).into_iter();
        let mut faults: Vec<Fault> = named.map(|fault| Fault { field: "name".to_owned(), ..fault }).collect();
        faults.extend(below("", request::check_labels(&self.labels)));
        faults
    }
}

impl Check for PutSchedule {
    fn check(&self) -> Vec<Fault> {
        let mut faults = below("request.", self.request.clone().keyed(None).check());
        if let Err(bad) = tidemill_core::schedule::Pattern::parse(&self.cron, &self.time_zone) {
            faults.push(Fault { field: "cron".to_owned(), problem: format!("is wrong: {bad}") });
        }
        faults
    }
}

impl Check for NewRule {
    fn check(&self) -> Vec<Fault> {
        below("", self.clone().numbered(0).check())
    }
}

impl Check for ImportRules {
    fn check(&self) -> Vec<Fault> {
        let each = self.rules.iter().enumerate();
        each.flat_map(|(at, rule)| below(&format!("rules[{at}]."), rule.clone().numbered(0).check()))
            .collect()
    }
}

impl Check for PutFeed {
    fn check(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if !self.settings.is_object() {
            let problem = "must be an object".to_owned();
            faults.push(Fault { field: "settings".to_owned(), problem });
        }
        for (field, cron) in [("schedule", &self.schedule), ("full_schedule", &self.full_schedule)] {
            if let Some(cron) = cron
                && let Err(bad) = tidemill_core::schedule::Pattern::parse(cron, &self.time_zone)
            {
                faults.push(Fault { field: field.to_owned(), problem: format!("is wrong: {bad}") });
            }
        }
        faults
    }
}
