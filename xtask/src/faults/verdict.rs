//! Reads the result of a test program from libtest's output.

/// The result of one test program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every test passed; how many.
    Passed(usize),
    /// The names of the tests that failed.
    Failed(Vec<String>),
    /// The program ended before its last test.
    Unknown,
}

/// Reads the summary at the end of libtest's output.
pub(super) fn verdict(text: &str) -> Verdict {
    if text.lines().any(|line| line.starts_with("test result: FAILED")) {
        // The names follow the last line `failures:`, indented, up to an empty line.
        let last = text.rsplit("\nfailures:\n").next().unwrap_or_default();
        let names: Vec<String> =
            last.lines().take_while(|line| !line.is_empty()).map(|line| line.trim().to_owned()).collect();
        return if names.is_empty() { Verdict::Unknown } else { Verdict::Failed(names) };
    }
    text.lines()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split_once(" passed")?.0.parse().ok())
        .map_or(Verdict::Unknown, Verdict::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_named() {
        let text = "\nrunning 3 tests\nF.F\nfailures:\n\n---- a::b stdout ----\nfailures:\n oops\n\n\n\
                    failures:\n    a::b\n    c\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\n\n";
        assert_eq!(verdict(text), Verdict::Failed(vec!["a::b".into(), "c".into()]));
    }

    #[test]
    fn passed_tests_are_counted_and_an_early_end_is_unknown() {
        assert_eq!(verdict("running 2 tests\n..\ntest result: ok. 2 passed; 0 failed\n"), Verdict::Passed(2));
        assert_eq!(verdict("running 1 test\n"), Verdict::Unknown);
        assert_eq!(verdict(""), Verdict::Unknown);
    }
}
