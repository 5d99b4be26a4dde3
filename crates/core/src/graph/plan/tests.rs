//! Tests of the decision order and of each decision.

use super::*;
use crate::job::StatusCode as C;

fn job(code: C) -> Job {
    Job {
        code,
        cancelled: false,
        uses_database: false,
        errors: 0,
        failures: 0,
        retries: 0,
        not_before: None,
        stopping: false,
    }
}

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn decide(job: &Job, report: Option<&Report>) -> Step {
    plan(job, Needs::Met, Flags::default(), Capacity::Free, report, now())
}

fn report(result: Option<TaskResult>) -> Report {
    Report { stage: Some(Stage::Executing), result, lost: false, others: OtherAgents::Connected }
}

fn ended(exit_code: i32) -> TaskResult {
    TaskResult::Ended { exit_code, unmatched: Vec::new(), hint: Vec::new(), message: None }
}

#[test]
fn cancel_comes_before_flags_and_results() {
    let flags = Flags { paused: true, maintenance: true, reboot: true };
    for &code in C::ALL.iter().filter(|code| !code.is_terminal()) {
        let job = Job { cancelled: true, uses_database: true, ..job(code) };
        let without = plan(&job, Needs::Failed, flags, Capacity::Never, None, now());
        assert_eq!(without, Step::End(C::CancelledByUser, None), "{code}");
        let with = plan(&job, Needs::Failed, flags, Capacity::Never, Some(&report(Some(ended(0)))), now());
        assert_eq!(with, Step::Stop(C::CancelledByUser), "{code}");
    }
}

#[test]
fn ended_jobs_do_not_change() {
    for &code in C::ALL.iter().filter(|code| code.is_terminal()) {
        let job = Job { cancelled: true, ..job(code) };
        assert_eq!(decide(&job, Some(&report(Some(ended(1))))), Step::Keep, "{code}");
    }
}

#[test]
fn failure_during_maintenance_does_not_count() {
    let job = Job { uses_database: true, ..job(C::Executing) };
    let flags = Flags { maintenance: true, ..Flags::default() };
    let step = plan(&job, Needs::Met, flags, Capacity::Free, Some(&report(Some(ended(1)))), now());
    assert_eq!(step, Step::Stop(C::WaitingDbMaintenance));
}

#[test]
fn maintenance_ignores_jobs_without_the_database() {
    let flags = Flags { maintenance: true, ..Flags::default() };
    let step = plan(&job(C::Created), Needs::Met, flags, Capacity::Free, None, now());
    assert_eq!(step, Step::Start);
}

#[test]
fn pause_starts_no_job_and_stops_none() {
    let flags = Flags { paused: true, ..Flags::default() };
    let running = plan(&job(C::Executing), Needs::Met, flags, Capacity::Free, Some(&report(None)), now());
    assert_eq!(running, Step::Keep);
    let pending = plan(&job(C::Created), Needs::Met, flags, Capacity::Free, None, now());
    assert_eq!(pending, Step::Become(C::Paused));
    let rebooting = plan(&job(C::WaitingOnReboot), Needs::Met, flags, Capacity::Free, None, now());
    assert_eq!(rebooting, Step::Keep);
}

#[test]
fn reboot_flag_resets_running_jobs() {
    let flags = Flags { paused: true, reboot: true, ..Flags::default() };
    let step = plan(&job(C::Prepared), Needs::Met, flags, Capacity::Free, Some(&report(None)), now());
    assert_eq!(step, Step::Stop(C::WaitingOnReboot));
}

#[test]
fn pending_job_waits_for_needs_and_fails_with_them() {
    let decide_with =
        |needs, capacity| plan(&job(C::Created), needs, Flags::default(), capacity, None, now());
    assert_eq!(decide_with(Needs::Open, Capacity::Free), Step::Become(C::WaitingOnDependencies));
    assert_eq!(decide_with(Needs::Failed, Capacity::Free), Step::End(C::DependencyFailed, None));
    assert_eq!(decide_with(Needs::OutOfReach, Capacity::Free), Step::End(C::JobError, None));
    assert_eq!(decide_with(Needs::Met, Capacity::NoWorker), Step::Become(C::WaitingOnWorkers));
    assert_eq!(decide_with(Needs::Met, Capacity::PoolFull), Step::Become(C::WaitingOnPool));
    assert_eq!(decide_with(Needs::Met, Capacity::Free), Step::Start);
    assert!(matches!(decide_with(Needs::Met, Capacity::Never), Step::End(C::JobError, Some(_))));
}

#[test]
fn no_task_starts_while_the_last_one_may_still_run() {
    let job = Job { stopping: true, ..job(C::WaitingOnReboot) };
    assert_eq!(decide(&job, None), Step::Keep);
}

#[test]
fn failed_tasks_are_repeated_until_the_error_budget_ends() {
    let failed =
        || TaskResult::Failed { fatal: false, elsewhere: false, message: "the disk is full".to_owned() };
    let mut waits = Vec::new();
    for errors in 0..ERRORS_MAX - 1 {
        let job = Job { errors, ..job(C::Executing) };
        let Step::Again { not_before, failure: false, .. } = decide(&job, Some(&report(Some(failed()))))
        else {
            panic!("a new task is expected")
        };
        waits.push((not_before - now()).num_seconds());
    }
    assert_eq!(waits, [5, 10, 20, 40]);
    let last = Job { errors: ERRORS_MAX - 1, ..job(C::Executing) };
    let Step::End(C::JobError, Some(message)) = decide(&last, Some(&report(Some(failed())))) else {
        panic!("the end of the job is expected")
    };
    assert_eq!(message, "5 tasks failed; the last error: the disk is full");
}

#[test]
fn fatal_error_is_not_retried() {
    let message = "no such program".to_owned();
    let result = TaskResult::Failed { fatal: true, elsewhere: false, message };
    let step = decide(&job(C::Executing), Some(&report(Some(result))));
    assert_eq!(step, Step::End(C::JobError, Some("no such program".to_owned())));
}

#[test]
fn error_of_one_agent_is_retried_on_other_agents() {
    let decide_with = |errors, others| {
        let result = TaskResult::Failed { fatal: true, elsewhere: true, message: "no secret".to_owned() };
        let report = Report { others, ..report(Some(result)) };
        decide(&Job { errors, ..job(C::Prepared) }, Some(&report))
    };
    // The error budget does not apply: each agent fails at most once.
    for errors in [0, ERRORS_MAX, 100] {
        let step = decide_with(errors, OtherAgents::Connected);
        let at_once = matches!(step, Step::Again { not_before, failure: false, .. } if not_before == now());
        assert!(at_once, "{errors}: {step:?}");
    }
    let waits = decide_with(0, OtherAgents::Away);
    assert!(matches!(waits, Step::Again { not_before, .. } if not_before > now()), "{waits:?}");
    assert!(matches!(decide_with(ERRORS_MAX - 1, OtherAgents::Away), Step::End(C::JobError, Some(_))));
    assert_eq!(decide_with(0, OtherAgents::None), Step::End(C::JobError, Some("no secret".to_owned())));
}

#[test]
fn nonzero_exit_is_retried_only_within_retries() {
    let step = decide(&job(C::Executed), Some(&report(Some(ended(3)))));
    assert_eq!(step, Step::End(C::NonzeroExit, Some("its command ended with 3".to_owned())));
    let retried = Job { retries: 2, failures: 1, ..job(C::Executed) };
    let step = decide(&retried, Some(&report(Some(ended(3)))));
    assert!(matches!(step, Step::Again { failure: true, stop: false, .. }), "{step:?}");
    let spent = Job { retries: 2, failures: 2, ..job(C::Executed) };
    assert!(matches!(decide(&spent, Some(&report(Some(ended(3))))), Step::End(C::NonzeroExit, _)));
}

#[test]
fn missing_output_fails_the_job_and_lists_new_files() {
    let result = TaskResult::Ended {
        exit_code: 0,
        unmatched: vec!["table (out/*.csv)".to_owned()],
        hint: vec!["out/table.tsv".to_owned()],
        message: None,
    };
    let step = decide(&job(C::Finalized), Some(&report(Some(result))));
    let message = "no file matches table (out/*.csv); new files are out/table.tsv";
    assert_eq!(step, Step::End(C::UnmatchedPatterns, Some(message.to_owned())));
}

#[test]
fn job_paused_during_backoff_waits_for_its_new_task() {
    let not_before = Some(now() + Duration::seconds(9));
    let held = Job { not_before, ..job(C::Paused) };
    assert_eq!(decide(&held, None), Step::Become(C::WaitingOnNewTask));
    let waiting = Job { not_before, ..job(C::WaitingOnNewTask) };
    assert_eq!(decide(&waiting, None), Step::Keep);
    let over = Job { not_before: Some(now()), ..job(C::Paused) };
    assert_eq!(decide(&over, None), Step::Start);
}

#[test]
fn stages_advance_the_code_and_never_move_back() {
    let at = |stage| Report { stage: Some(stage), result: None, lost: false, others: OtherAgents::Connected };
    assert_eq!(decide(&job(C::Initiated), Some(&at(Stage::Executing))), Step::Become(C::Executing));
    assert_eq!(decide(&job(C::Executed), Some(&at(Stage::Executing))), Step::Keep);
}

#[test]
fn lost_agent_fails_the_task_and_its_command_is_stopped() {
    let report = Report { lost: true, ..report(None) };
    let step = decide(&job(C::Executing), Some(&report));
    assert!(matches!(step, Step::Again { stop: true, failure: false, .. }), "{step:?}");
}

#[test]
fn every_step_is_a_legal_transition() {
    let mut flags = Vec::new();
    for bits in 0..8 {
        flags.push(Flags { paused: bits & 1 > 0, maintenance: bits & 2 > 0, reboot: bits & 4 > 0 });
    }
    let results = [None, Some(ended(0)), Some(ended(1)), Some(TaskResult::Stopped)];
    let mut transitions = 0;
    for &code in C::ALL {
        for &flags in &flags {
            for needs in [Needs::Met, Needs::Open, Needs::Failed, Needs::OutOfReach] {
                for capacity in [Capacity::Free, Capacity::NoWorker, Capacity::PoolFull, Capacity::Never] {
                    for result in &results {
                        for cancelled in [false, true] {
                            let job = Job { cancelled, uses_database: true, ..job(code) };
                            let has_task = code.state() == JobState::Running;
                            let report = has_task.then(|| report(result.clone()));
                            let step = plan(&job, needs, flags, capacity, report.as_ref(), now());
                            let to = match step {
                                Step::Keep => continue,
                                Step::Become(to) | Step::Stop(to) | Step::End(to, _) => to,
                                Step::Start => C::Initiated,
                                Step::Again { .. } => C::WaitingOnNewTask,
                            };
                            assert!(job::pairs().contains(&(code, to)), "{code} to {to}");
                            transitions += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(transitions > 1_000);
}
