//! Every line arrives once and in order, and memory stays bounded when the worker does not read.

use std::fmt::Write;
use std::fs;
use std::time::Duration;

use tidemill_supervisor::{End, Part, Report, Stream};

use crate::fixture::{command, next, rest, run, shell, start, until};

#[tokio::test]
async fn hundred_thousand_equal_lines_all_arrive() {
    let outcome = run(&shell("yes same | head -n 100000; exit 5")).await;
    assert_eq!(outcome.end, End::Code(5));
    assert_eq!(outcome.output.len(), 100_000);
    assert!(outcome.output.iter().all(|line| *line == (Stream::Stdout, "same".to_owned(), Part::Whole)));
}

#[tokio::test]
async fn each_stream_keeps_its_order() {
    let outcome =
        run(&shell("i=0; while [ $i -lt 2000 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done")).await;
    let expected = |letter: char| (0..2000).map(|number| format!("{letter}{number}")).collect::<Vec<_>>();
    assert_eq!(outcome.texts(Stream::Stdout), expected('o'));
    assert_eq!(outcome.texts(Stream::Stderr), expected('e'));
}

#[tokio::test]
async fn line_of_a_megabyte_arrives_in_parts() {
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
async fn invalid_utf8_and_nul_are_replaced() {
    let outcome = run(&shell(r"printf 'a\377b\000c\r\n\nd'")).await;
    assert_eq!(outcome.stdout(), ["a\u{FFFD}b\u{FFFD}c", "", "d"]);
    assert_eq!(outcome.end, End::Code(0));
}

#[tokio::test]
async fn last_line_without_line_end_is_reported() {
    let outcome = run(&shell("printf 'one\ntwo'; printf three >&2")).await;
    assert_eq!(outcome.stdout(), ["one", "two"]);
    assert_eq!(outcome.texts(Stream::Stderr), ["three"]);
}

#[tokio::test]
async fn command_without_output_gives_no_lines() {
    assert_eq!(run(&command(&["true"])).await.output, []);
}

#[tokio::test]
async fn waiting_for_a_report_is_cancel_safe() {
    let mut supervised = start(&command(&["seq", "20000"])).await;
    let mut expected = 1..=20_000;
    let mut cancelled = 0;
    loop {
        let report = tokio::select! {
            biased;
            report = supervised.next() => report.unwrap(),
            () = tokio::task::yield_now() => {
                cancelled += 1;
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
            None => panic!("no end was reported"),
        }
    }
    assert_eq!(expected.next(), None);
    assert!(cancelled > 0);
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

/// The command waits instead of filling memory, and can be killed in that state. One endless line of NUL bytes is
/// the worst case: each byte becomes three.
#[tokio::test]
async fn worker_that_does_not_read_blocks_the_command() {
    let mut supervised = start(&command(&["dd", "if=/dev/zero", "bs=64k"])).await;
    let Report::Started { pid } = next(&mut supervised).await else {
        panic!("the first report is not the start")
    };
    let mut before = 0;
    let mut quiet = 0;
    until("the command waits", || {
        let now = bytes_written(pid);
        quiet = if now == before && now > 0 { quiet + 1 } else { 0 };
        before = now;
        quiet > 100
    })
    .await;
    assert!(bytes_written(pid) < 8 * 1024 * 1024, "{} bytes were read", bytes_written(pid));
    let peak = memory_peak_kib(supervised.supervisor_id().unwrap());
    assert!(peak < 32 * 1024, "the supervisor used {peak} KiB");

    supervised.control().kill().await;
    assert_eq!(rest(&mut supervised).await.end, End::Signal(9));
}

#[tokio::test]
async fn worker_that_reads_slowly_costs_no_memory() {
    let mut supervised = start(&command(&["yes", &"x".repeat(1000)])).await;
    for number in 0..40_000 {
        next(&mut supervised).await;
        if number % 64 == 0 {
            // Makes the reader slow.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let peak = memory_peak_kib(supervised.supervisor_id().unwrap());
    assert!(peak < 32 * 1024, "the supervisor used {peak} KiB");
    supervised.control().kill().await;
    rest(&mut supervised).await;
}

/// The output is read long after the command ended and after the time limit for open output pipes.
#[tokio::test]
async fn slow_reader_gets_all_output_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("done");
    // Small enough for the command to end before the output is read, and too large for the buffers once reported.
    let mut spec = shell("seq 12000; touch \"$MARK\"");
    spec.env = vec![("MARK".to_owned(), marker.to_str().unwrap().to_owned())];
    let mut supervised = start(&spec).await;
    until("the command ends", || marker.exists()).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let outcome = rest(&mut supervised).await;
    assert_eq!(outcome.output.len(), 12_000);
    assert_eq!(outcome.output.last().unwrap().1, "12000");
    assert_eq!(outcome.end, End::Code(0));
}
