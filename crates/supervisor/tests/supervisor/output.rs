//! Every line arrives, in order, once, and memory stays bounded when nobody reads.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use tidemill_supervisor::{End, Part, Report, Stream};

use crate::stage::{command, next, rest, run, shell, start, until};

#[tokio::test]
async fn a_hundred_thousand_equal_lines_all_arrive() {
    let outcome = run(&shell("yes same | head -n 100000; exit 5")).await;
    assert_eq!(outcome.end, End::Code(5));
    assert_eq!(outcome.output.len(), 100_000);
    assert!(outcome.output.iter().all(|line| *line == (Stream::Stdout, "same".to_owned(), Part::Whole)));
}

#[tokio::test]
async fn both_streams_keep_their_own_order() {
    let outcome =
        run(&shell("i=0; while [ $i -lt 2000 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done")).await;
    let expected = |letter: char| (0..2000).map(|number| format!("{letter}{number}")).collect::<Vec<_>>();
    assert_eq!(outcome.texts(Stream::Stdout), expected('o'));
    assert_eq!(outcome.texts(Stream::Stderr), expected('e'));
}

#[tokio::test]
async fn a_line_of_a_megabyte_comes_in_parts_that_join() {
    let mut line = String::new();
    while line.len() < 1_000_000 {
        write!(line, "{}äöü€😀", line.len()).unwrap();
    }
    let mut spec = command(&["cat"]);
    spec.stdin = format!("{line}\nnext\n").into_bytes();
    let outcome = run(&spec).await;
    let (next_line, parts) = outcome.output.split_last().unwrap();
    assert_eq!(next_line, &(Stream::Stdout, "next".to_owned(), Part::Whole));
    let (last, pieces) = parts.split_last().unwrap();
    assert_eq!(last.2, Part::Last);
    assert!(pieces.iter().all(|(_, text, part)| *part == Part::Piece && text.len() <= spec.line_bytes_max));
    assert!(pieces.len() >= line.len() / spec.line_bytes_max);
    assert_eq!(parts.iter().map(|(_, text, _)| text.as_str()).collect::<String>(), line);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_replaced() {
    let outcome = run(&shell(r"printf 'a\377b\000c\r\n\nd'")).await;
    assert_eq!(outcome.stdout(), ["a\u{FFFD}b\u{FFFD}c", "", "d"]);
    assert_eq!(outcome.end, End::Code(0));
}

#[tokio::test]
async fn a_last_line_needs_no_line_end() {
    let outcome = run(&shell("printf 'one\ntwo'; printf three >&2")).await;
    assert_eq!(outcome.stdout(), ["one", "two"]);
    assert_eq!(outcome.texts(Stream::Stderr), ["three"]);
}

#[tokio::test]
async fn silence_is_no_line() {
    assert_eq!(run(&command(&["true"])).await.output, []);
}

/// Shows that no report is lost when the future is dropped, as `select!` does: each wait is given up many times.
#[tokio::test]
async fn waiting_for_a_report_can_be_given_up() {
    let mut supervised = start(&command(&["seq", "20000"])).await;
    let mut expected = 1..=20_000;
    let mut given_up = 0;
    loop {
        let report = tokio::select! {
            biased;
            report = supervised.next() => report.unwrap(),
            () = tokio::task::yield_now() => {
                given_up += 1;
                continue;
            }
        };
        match report {
            Some(Report::Started { .. }) => {}
            Some(Report::Output { text, .. }) => {
                assert_eq!(Some(text), expected.next().map(|number| number.to_string()));
            }
            Some(Report::Exited(end)) => {
                assert_eq!(end, End::Code(0));
                break;
            }
            None => panic!("the end comes first"),
        }
    }
    assert_eq!(expected.next(), None);
    assert!(given_up > 0);
}

fn bytes_written(pid: i32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    written.parse().unwrap()
}

fn memory_peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Shows that a worker which does not read holds the command back instead of filling memory, and that the command
/// can be killed in that state. One endless line of NUL bytes is the worst case: each byte becomes three.
#[tokio::test]
async fn a_worker_that_does_not_read_holds_the_command_back() {
    let mut supervised = start(&command(&["dd", "if=/dev/zero", "bs=64k"])).await;
    let Report::Started { pid } = next(&mut supervised).await else { panic!("the start comes first") };
    let mut before = 0;
    let mut quiet = 0;
    until("the command waits", || {
        let now = bytes_written(pid);
        quiet = if now == before && now > 0 { quiet + 1 } else { 0 };
        before = now;
        quiet > 100
    })
    .await;
    assert!(bytes_written(pid) < 8 * 1024 * 1024, "{} bytes were taken", bytes_written(pid));
    let peak = memory_peak_kib(supervised.supervisor_id().unwrap());
    assert!(peak < 32 * 1024, "the supervisor took {peak} KiB");

    supervised.control().kill().await;
    assert_eq!(rest(&mut supervised).await.end, End::Signal(9));
}

/// Shows that memory is bounded for a worker that reads all the time, but more slowly than the command writes.
#[tokio::test]
async fn a_worker_that_cannot_keep_up_costs_no_memory() {
    let mut supervised = start(&command(&["yes", &"x".repeat(1000)])).await;
    for number in 0..40_000 {
        next(&mut supervised).await;
        if number % 64 == 0 {
            // Not to wait for anything: this is what makes the reader slow.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let peak = memory_peak_kib(supervised.supervisor_id().unwrap());
    assert!(peak < 32 * 1024, "the supervisor took {peak} KiB");
    supervised.control().kill().await;
    rest(&mut supervised).await;
}

/// Shows that the end waits for the output, however late it is read: long after the command and its time to drain.
#[tokio::test]
async fn the_end_comes_after_all_output_for_a_slow_reader_too() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("done");
    // Little enough for the command to end while nobody reads, more than fits on the way once it is reported.
    let mut spec = shell("seq 12000; touch \"$MARK\"");
    spec.env = vec![("MARK".to_owned(), mark.to_str().unwrap().to_owned())];
    let mut supervised = start(&spec).await;
    until("the command ends", || mark.exists()).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let outcome = rest(&mut supervised).await;
    assert_eq!(outcome.output.len(), 12_000);
    assert_eq!(outcome.output.last().unwrap().1, "12000");
    assert_eq!(outcome.end, End::Code(0));
}
