//! Faults that are put in on purpose, to prove that the tests notice them. A product has none of them: without the
//! feature `broken` each is off, and the compiler leaves it out.

/// One way to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Reports are taken from anybody at any time.
    NoFence,
    /// The next try is queued after the end of the one before was committed.
    CommitThenSend,
    /// Partitions that end meanwhile are counted or not, as it happens.
    CountWithoutLock,
    /// The watermark moves to the time of completion.
    WatermarkDetail,
    /// A short page is taken for the end of its partition.
    ShortPageEnds,
}

impl Break {
    /// Every one of them.
    pub const ALL: [Self; 5] = [
        Self::NoFence,
        Self::CommitThenSend,
        Self::CountWithoutLock,
        Self::WatermarkDetail,
        Self::ShortPageEnds,
    ];

    /// The variable of the environment that names the one fault of a process, in a build with the feature.
    pub const VARIABLE: &str = "TIDEMILL_BROKEN";

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoFence => "no-fence",
            Self::CommitThenSend => "commit-then-send",
            Self::CountWithoutLock => "count-without-lock",
            Self::WatermarkDetail => "watermark-now",
            Self::ShortPageEnds => "short-page-ends",
        }
    }

    /// Whether this process has it.
    #[cfg(not(feature = "broken"))]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Whether this process has it.
    #[cfg(feature = "broken")]
    pub fn is_on(self) -> bool {
        static ON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        ON.get_or_init(|| std::env::var(Self::VARIABLE).ok()).as_deref() == Some(self.name())
    }
}
