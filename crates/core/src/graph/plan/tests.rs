//! The decision order, and what each decision is.

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
    plan(job, Needs::Met, Flags::default(), Room::Free, report, now())
}

fn report(result: Option<TaskResult>) -> Report {
    Report { stage: Some(Stage::Executing), result, lost: false, others: Others::There }
}

fn ended(exit_code: i32) -> TaskResult {
    TaskResult::Ended { exit_code, unmatched: Vec::new(), hint: Vec::new(), message: None }
}

#[test]
fn a_wish_to_stop_comes_before_everything() {
    let flags = Flags { paused: true, maintenance: true, reboot: true };
    for &code in C::ALL.iter().filter(|code| !code.is_terminal()) {
        let job = Job { cancelled: true, uses_database: true, ..job(code) };
        let without = plan(&job, Needs::Failed, flags, Room::Never, None, now());
        assert_eq!(without, Step::End(C::CancelledByUser, None), "{code}");
        let with = plan(&job, Needs::Failed, flags, Room::Never, Some(&report(Some(ended(0)))), now());
        assert_eq!(with, Step::Stop(C::CancelledByUser), "{code}");
    }
}

#[test]
fn what_has_ended_stays() {
    for &code in C::ALL.iter().filter(|code| code.is_terminal()) {
        let job = Job { cancelled: true, ..job(code) };
        assert_eq!(decide(&job, Some(&report(Some(ended(1))))), Step::Keep, "{code}");
    }
}

#[test]
fn a_failure_during_maintenance_is_not_taken_for_a_failure() {
    let job = Job { uses_database: true, ..job(C::Executing) };
    let flags = Flags { maintenance: true, ..Flags::default() };
    let step = plan(&job, Needs::Met, flags, Room::Free, Some(&report(Some(ended(1)))), now());
    assert_eq!(step, Step::Stop(C::WaitingDbMaintenance));
}

#[test]
fn maintenance_leaves_jobs_alone_that_do_not_use_the_database() {
    let flags = Flags { maintenance: true, ..Flags::default() };
    let step = plan(&job(C::Created), Needs::Met, flags, Room::Free, None, now());
    assert_eq!(step, Step::Start);
}

#[test]
fn a_pause_stops_nothing_that_runs_and_begins_nothing() {
    let flags = Flags { paused: true, ..Flags::default() };
    let running = plan(&job(C::Executing), Needs::Met, flags, Room::Free, Some(&report(None)), now());
    assert_eq!(running, Step::Keep);
    let pending = plan(&job(C::Created), Needs::Met, flags, Room::Free, None, now());
    assert_eq!(pending, Step::Become(C::Paused));
    let rebooting = plan(&job(C::WaitingOnReboot), Needs::Met, flags, Room::Free, None, now());
    assert_eq!(rebooting, Step::Keep);
}

#[test]
fn a_restart_resets_what_runs() {
    let flags = Flags { paused: true, reboot: true, ..Flags::default() };
    let step = plan(&job(C::Prepared), Needs::Met, flags, Room::Free, Some(&report(None)), now());
    assert_eq!(step, Step::Stop(C::WaitingOnReboot));
}

#[test]
fn a_job_waits_for_what_it_needs_and_fails_with_it() {
    let ask = |needs, room| plan(&job(C::Created), needs, Flags::default(), room, None, now());
    assert_eq!(ask(Needs::Open, Room::Free), Step::Become(C::WaitingOnDependencies));
    assert_eq!(ask(Needs::Failed, Room::Free), Step::End(C::DependencyFailed, None));
    assert_eq!(ask(Needs::OutOfReach, Room::Free), Step::End(C::JobError, None));
    assert_eq!(ask(Needs::Met, Room::NoWorker), Step::Become(C::WaitingOnWorkers));
    assert_eq!(ask(Needs::Met, Room::PoolFull), Step::Become(C::WaitingOnPool));
    assert_eq!(ask(Needs::Met, Room::Free), Step::Start);
    assert!(matches!(ask(Needs::Met, Room::Never), Step::End(C::JobError, Some(_))));
}

#[test]
fn nothing_begins_while_something_of_the_last_task_may_still_run() {
    let job = Job { stopping: true, ..job(C::WaitingOnReboot) };
    assert_eq!(decide(&job, None), Step::Keep);
}

#[test]
fn a_task_that_comes_to_nothing_is_followed_by_another_until_there_were_too_many() {
    let failed =
        || TaskResult::Failed { fatal: false, elsewhere: false, message: "the disk is full".to_owned() };
    let mut waits = Vec::new();
    for errors in 0..ERRORS_MAX - 1 {
        let job = Job { errors, ..job(C::Executing) };
        let Step::Again { not_before, failure: false, .. } = decide(&job, Some(&report(Some(failed()))))
        else {
            panic!("a new task")
        };
        waits.push((not_before - now()).num_seconds());
    }
    assert_eq!(waits, [5, 10, 20, 40]);
    let last = Job { errors: ERRORS_MAX - 1, ..job(C::Executing) };
    let Step::End(C::JobError, Some(message)) = decide(&last, Some(&report(Some(failed())))) else {
        panic!("it is given up")
    };
    assert_eq!(message, "5 tasks came to nothing; the last one: the disk is full");
}

#[test]
fn a_fatal_error_is_not_tried_again() {
    let message = "no such program".to_owned();
    let result = TaskResult::Failed { fatal: true, elsewhere: false, message };
    let step = decide(&job(C::Executing), Some(&report(Some(result))));
    assert_eq!(step, Step::End(C::JobError, Some("no such program".to_owned())));
}

#[test]
fn what_one_agent_will_never_do_is_tried_by_the_others() {
    let ask = |errors, others| {
        let result = TaskResult::Failed { fatal: true, elsewhere: true, message: "no secret".to_owned() };
        let report = Report { others, ..report(Some(result)) };
        decide(&Job { errors, ..job(C::Prepared) }, Some(&report))
    };
    // However many agents have failed at it: each does so once.
    for errors in [0, ERRORS_MAX, 100] {
        let step = ask(errors, Others::There);
        let at_once = matches!(step, Step::Again { not_before, failure: false, .. } if not_before == now());
        assert!(at_once, "{errors}: {step:?}");
    }
    let waits = ask(0, Others::Away);
    assert!(matches!(waits, Step::Again { not_before, .. } if not_before > now()), "{waits:?}");
    assert!(matches!(ask(ERRORS_MAX - 1, Others::Away), Step::End(C::JobError, Some(_))));
    assert_eq!(ask(0, Others::Nobody), Step::End(C::JobError, Some("no secret".to_owned())));
}

#[test]
fn a_bad_exit_is_tried_again_only_where_asked() {
    let step = decide(&job(C::Executed), Some(&report(Some(ended(3)))));
    assert_eq!(step, Step::End(C::NonzeroExit, Some("its command ended with 3".to_owned())));
    let retried = Job { retries: 2, failures: 1, ..job(C::Executed) };
    let step = decide(&retried, Some(&report(Some(ended(3)))));
    assert!(matches!(step, Step::Again { failure: true, stop: false, .. }), "{step:?}");
    let spent = Job { retries: 2, failures: 2, ..job(C::Executed) };
    assert!(matches!(decide(&spent, Some(&report(Some(ended(3))))), Step::End(C::NonzeroExit, _)));
}

#[test]
fn a_missing_output_fails_a_command_that_ended_well_and_names_what_is_there() {
    let result = TaskResult::Ended {
        exit_code: 0,
        unmatched: vec!["table (out/*.csv)".to_owned()],
        hint: vec!["out/table.tsv".to_owned()],
        message: None,
    };
    let step = decide(&job(C::Finalized), Some(&report(Some(result))));
    let words = "no file matches table (out/*.csv); new files are out/table.tsv";
    assert_eq!(step, Step::End(C::UnmatchedPatterns, Some(words.to_owned())));
}

#[test]
fn a_job_that_was_held_while_it_backs_off_says_afterwards_what_it_waits_for() {
    let not_before = Some(now() + Duration::seconds(9));
    let held = Job { not_before, ..job(C::Paused) };
    assert_eq!(decide(&held, None), Step::Become(C::WaitingOnNewTask));
    let waiting = Job { not_before, ..job(C::WaitingOnNewTask) };
    assert_eq!(decide(&waiting, None), Step::Keep);
    let over = Job { not_before: Some(now()), ..job(C::Paused) };
    assert_eq!(decide(&over, None), Step::Start);
}

#[test]
fn stages_are_mirrored_and_never_go_back() {
    let at = |stage| Report { stage: Some(stage), result: None, lost: false, others: Others::There };
    assert_eq!(decide(&job(C::Initiated), Some(&at(Stage::Executing))), Step::Become(C::Executing));
    assert_eq!(decide(&job(C::Executed), Some(&at(Stage::Executing))), Step::Keep);
}

#[test]
fn a_lost_agent_costs_a_task_and_its_command_is_stopped_first() {
    let report = Report { lost: true, ..report(None) };
    let step = decide(&job(C::Executing), Some(&report));
    assert!(matches!(step, Step::Again { stop: true, failure: false, .. }), "{step:?}");
}

#[test]
fn every_step_is_an_arrow_of_the_lifecycle() {
    let mut flags = Vec::new();
    for bits in 0..8 {
        flags.push(Flags { paused: bits & 1 > 0, maintenance: bits & 2 > 0, reboot: bits & 4 > 0 });
    }
    let results = [None, Some(ended(0)), Some(ended(1)), Some(TaskResult::Stopped)];
    let mut seen = 0;
    for &code in C::ALL {
        for &flags in &flags {
            for needs in [Needs::Met, Needs::Open, Needs::Failed, Needs::OutOfReach] {
                for room in [Room::Free, Room::NoWorker, Room::PoolFull, Room::Never] {
                    for result in &results {
                        for cancelled in [false, true] {
                            let job = Job { cancelled, uses_database: true, ..job(code) };
                            let has_task = code.state() == JobState::Running;
                            let report = has_task.then(|| report(result.clone()));
                            let step = plan(&job, needs, flags, room, report.as_ref(), now());
                            let to = match step {
                                Step::Keep => continue,
                                Step::Become(to) | Step::Stop(to) | Step::End(to, _) => to,
                                Step::Start => C::Initiated,
                                Step::Again { .. } => C::WaitingOnNewTask,
                            };
                            assert!(job::pairs().contains(&(code, to)), "{code} to {to}");
                            seen += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(seen > 1_000);
}
