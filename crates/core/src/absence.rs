//! Evidence that a list was read whole, and proof that records are absent from their source.
//!
//! A page that skips a record looks like a page without that record. So a record that was not read counts as absent
//! only if its lists were read with evidence that no record was skipped, or if a lookup does not find it. The evidence
//! is decided when a partition completes, and is stored with it.
//!
//! Not excluded, except by a lookup: while a list is read, a record moves to an earlier position, and another record
//! leaves the list. If that happens to the same record in two full syncs, its row is deleted.

use crate::page::ReadCounts;

/// How the pages of a list show that no record lies between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageLinks {
    /// Each page contains a record of the page before it.
    Overlap,
    /// The list is sorted by the primary key, and each page begins after the last key of the page before it.
    Keys,
    /// Not at all: pages by number, cursor or URL.
    Nothing,
}

/// Properties of a list that are known before it is read.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListTraits {
    pub links: PageLinks,
    /// Whether the source counts the records that changed since a time.
    pub counts_changes: bool,
    /// Whether a page with few records ends the list.
    pub ends_with_short_page: bool,
    /// Whether the user declares that the list, read to its end, contains every record.
    pub is_declared: bool,
    /// Whether records are deleted because a list does not contain them.
    pub decides_deletes: bool,
}

impl ListTraits {
    /// Returns whether the list is counted before its first page, to show that it did not change.
    pub const fn needs_first_count(&self) -> bool {
        self.decides_deletes && self.counts_changes && matches!(self.links, PageLinks::Nothing)
    }
}

/// Findings of one pass over a list, from its beginning to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassFacts {
    pub read: ReadCounts,
    /// Number of pages with records.
    pub pages: u64,
    /// Whether every page is linked to the page before it.
    pub is_linked: bool,
    /// Count of the source before the first page.
    pub before: Option<u64>,
    /// Count of the source after the last page.
    pub after: Option<u64>,
    /// Records that changed since the count before the first page.
    pub changed: Option<u64>,
}

impl PassFacts {
    /// Returns whether the list had the same number of records before, during and after its pages were read.
    pub fn is_same_size(&self) -> bool {
        self.before == self.after && self.after == Some(self.read.distinct_in_pass)
    }
}

/// Why nothing shows that a list was read whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum EvidenceGap {
    #[error("the source does not count this list, and its pages neither overlap nor follow the primary key")]
    NoTotal,
    #[error("a page did not overlap the page before it")]
    PagesApart,
    #[error("the keys of the list do not rise strictly")]
    KeysUnordered,
    #[error("the list changed while it was read")]
    ListChanged,
    #[error("the source cannot count the records that changed while the list was read")]
    ChangesUncounted,
    #[error("the source counts more records than the list contains")]
    CountIsHigher,
    #[error("the list contains records more than once")]
    Repeats,
    #[error("the list contains records without an id")]
    Nameless,
    #[error("the list is empty, and the source does not count it")]
    EmptyList,
    #[error("a short page ended the list, and the source does not count it")]
    ShortEnd,
    #[error("the source does not count its whole list, so records may be in no partition")]
    PartitionsUncounted,
    #[error("the source counts more records than all partitions contained together")]
    PartitionsChanged,
    #[error("the list was read without a check")]
    Unchecked,
}

/// The evidence that a list was read whole, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListEvidence {
    /// All keys rise strictly, within and between pages.
    KeyOrder,
    /// Each page overlapped the one before.
    Overlap,
    /// The list did not change while it was read.
    Still,
    /// The user declares that the list is complete.
    Declared,
    Missing(EvidenceGap),
}

/// The words under which evidence is stored.
const WORDS: [(ListEvidence, &str); 17] = [
    (ListEvidence::KeyOrder, "key_order"),
    (ListEvidence::Overlap, "overlap"),
    (ListEvidence::Still, "still"),
    (ListEvidence::Declared, "declared"),
    (ListEvidence::Missing(EvidenceGap::NoTotal), "no_total"),
    (ListEvidence::Missing(EvidenceGap::PagesApart), "pages_apart"),
    (ListEvidence::Missing(EvidenceGap::KeysUnordered), "keys_unordered"),
    (ListEvidence::Missing(EvidenceGap::ListChanged), "list_changed"),
    (ListEvidence::Missing(EvidenceGap::ChangesUncounted), "changes_uncounted"),
    (ListEvidence::Missing(EvidenceGap::CountIsHigher), "count_is_higher"),
    (ListEvidence::Missing(EvidenceGap::Repeats), "repeats"),
    (ListEvidence::Missing(EvidenceGap::Nameless), "nameless"),
    (ListEvidence::Missing(EvidenceGap::EmptyList), "empty_list"),
    (ListEvidence::Missing(EvidenceGap::ShortEnd), "short_end"),
    (ListEvidence::Missing(EvidenceGap::PartitionsUncounted), "partitions_uncounted"),
    (ListEvidence::Missing(EvidenceGap::PartitionsChanged), "partitions_changed"),
    (ListEvidence::Missing(EvidenceGap::Unchecked), "unchecked"),
];

impl ListEvidence {
    /// Returns the word under which the evidence is stored.
    pub fn as_str(self) -> &'static str {
        WORDS.iter().find(|(one, _)| *one == self).map_or("unchecked", |(_, word)| word)
    }

    /// Returns the evidence of a stored word. Nothing is known of a partition without a word.
    pub fn parse(word: Option<&str>) -> Self {
        let found = WORDS.iter().find(|(_, stored)| Some(*stored) == word);
        found.map_or(Self::Missing(EvidenceGap::Unchecked), |(evidence, _)| *evidence)
    }

    /// Returns why the evidence is missing; `None` if there is evidence.
    pub const fn gap(self) -> Option<EvidenceGap> {
        match self {
            Self::KeyOrder | Self::Overlap | Self::Still | Self::Declared => None,
            Self::Missing(gap) => Some(gap),
        }
    }

    /// Returns the evidence of a sync: the weakest evidence of its partitions.
    pub fn weakest(partitions: impl IntoIterator<Item = Self>) -> Self {
        partitions.into_iter().max().unwrap_or(Self::Missing(EvidenceGap::Unchecked))
    }
}

/// Decides whether a pass over a list, from its first page to its end, read every record.
pub fn decide_evidence(list: ListTraits, pass: &PassFacts) -> ListEvidence {
    let decided = decide_by_facts(list, pass);
    if list.is_declared && decided.gap().is_some() { ListEvidence::Declared } else { decided }
}

/// Decides whether several partitions, each read whole, together contain every record. A record that moves from a
/// partition that is not read yet to one that was read is in no page, so the source counts more records than were read.
pub const fn evidence_of_partitions(weakest: ListEvidence, read: u64, whole: u64) -> ListEvidence {
    match weakest {
        ListEvidence::KeyOrder | ListEvidence::Overlap | ListEvidence::Still if read < whole => {
            ListEvidence::Missing(EvidenceGap::PartitionsChanged)
        }
        ListEvidence::KeyOrder
        | ListEvidence::Overlap
        | ListEvidence::Still
        | ListEvidence::Declared
        | ListEvidence::Missing(_) => weakest,
    }
}

fn decide_by_facts(list: ListTraits, pass: &PassFacts) -> ListEvidence {
    let missing = ListEvidence::Missing;
    match pass.after {
        // A record without an id may be any record, and a repeated one may stand in for a skipped one.
        _ if pass.read.nameless > 0 => return missing(EvidenceGap::Nameless),
        _ if pass.read.repeats() > 0 => return missing(EvidenceGap::Repeats),
        Some(after) if pass.read.distinct_in_pass < after => return missing(EvidenceGap::CountIsHigher),
        None if pass.pages == 0 => return missing(EvidenceGap::EmptyList),
        None if list.ends_with_short_page => return missing(EvidenceGap::ShortEnd),
        Some(_) | None => {}
    }
    let unlinked = match list.links {
        PageLinks::Keys if pass.is_linked => return ListEvidence::KeyOrder,
        PageLinks::Overlap if pass.is_linked => return ListEvidence::Overlap,
        PageLinks::Keys => EvidenceGap::KeysUnordered,
        PageLinks::Overlap => EvidenceGap::PagesApart,
        PageLinks::Nothing if pass.after.is_none() => EvidenceGap::NoTotal,
        PageLinks::Nothing => EvidenceGap::ChangesUncounted,
    };
    // One answer is a snapshot of the list. Several answers are one only if nothing changed in between.
    if pass.pages <= 1 && pass.after == Some(pass.read.distinct_in_pass) {
        return ListEvidence::Still;
    }
    match (pass.before, pass.changed) {
        (Some(_), Some(0)) if pass.is_same_size() => ListEvidence::Still,
        (Some(_), Some(_)) => missing(EvidenceGap::ListChanged),
        (Some(_), None) if !pass.is_same_size() => missing(EvidenceGap::ListChanged),
        (Some(_) | None, _) => missing(unlinked),
    }
}

/// Evidence that a lookup finds records that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupControl {
    /// The lookup found a record that this sync has read.
    Found,
    /// The feed is built in: its lookup is known to work.
    BuiltIn,
}

/// Records whose absence from their source is proven. Only these may be deleted without a flag of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentRecords(Vec<String>);

impl AbsentRecords {
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// Two full syncs missed the records, and no sync between them read one. `None` if a sync lacks evidence.
    pub fn missed_twice(first: ListEvidence, second: ListEvidence, records: Vec<String>) -> Option<Self> {
        (first.gap().is_none() && second.gap().is_none()).then_some(Self(records))
    }

    /// A sync that replaces the table missed the records. `None` if the sync lacks evidence.
    pub fn replaced(sync: ListEvidence, records: Vec<String>) -> Option<Self> {
        sync.gap().is_none().then_some(Self(records))
    }

    /// A lookup that finds existing records does not find these.
    pub fn not_found(control: LookupControl, records: Vec<String>) -> Self {
        match control {
            LookupControl::Found | LookupControl::BuiltIn => Self(records),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ids of the records.
    pub fn ids(&self) -> &[String] {
        &self.0
    }

    /// Returns the records at these positions.
    #[must_use]
    pub fn slice(&self, positions: std::ops::Range<usize>) -> Self {
        Self(self.0.get(positions).unwrap_or_default().to_vec())
    }

    /// Returns the records that meet a condition.
    #[must_use]
    pub fn filter(&self, is_kept: impl Fn(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|id| is_kept(id)).cloned().collect())
    }

    /// Returns the ids of the records.
    pub fn into_ids(self) -> Vec<String> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: ListTraits = ListTraits {
        links: PageLinks::Nothing,
        counts_changes: true,
        ends_with_short_page: false,
        is_declared: false,
        decides_deletes: true,
    };

    /// Three pages with 30 records, of which the source counts 30 before and after.
    fn pass() -> PassFacts {
        let read = ReadCounts { distinct: 30, distinct_in_pass: 30, positions: 30, nameless: 0 };
        PassFacts { read, pages: 3, is_linked: false, before: Some(30), after: Some(30), changed: Some(0) }
    }

    fn linked() -> PassFacts {
        PassFacts { is_linked: true, before: None, after: None, changed: None, ..pass() }
    }

    fn gap(list: ListTraits, pass: PassFacts) -> EvidenceGap {
        decide_evidence(list, &pass).gap().expect("no evidence")
    }

    #[test]
    fn linked_pages_are_evidence_without_a_count() {
        let by = |links| ListTraits { links, ..LIST };
        assert_eq!(decide_evidence(by(PageLinks::Keys), &linked()), ListEvidence::KeyOrder);
        assert_eq!(decide_evidence(by(PageLinks::Overlap), &linked()), ListEvidence::Overlap);
        let apart = PassFacts { is_linked: false, ..linked() };
        assert_eq!(gap(by(PageLinks::Keys), apart), EvidenceGap::KeysUnordered);
        assert_eq!(gap(by(PageLinks::Overlap), apart), EvidenceGap::PagesApart);
        assert_eq!(gap(LIST, linked()), EvidenceGap::NoTotal);
        let short = ListTraits { ends_with_short_page: true, ..by(PageLinks::Overlap) };
        assert_eq!(gap(short, linked()), EvidenceGap::ShortEnd);
        let counted = PassFacts { after: Some(30), ..linked() };
        assert_eq!(decide_evidence(short, &counted), ListEvidence::Overlap);
        let skipped = PassFacts { after: Some(31), ..linked() };
        assert_eq!(gap(by(PageLinks::Overlap), skipped), EvidenceGap::CountIsHigher);
    }

    #[test]
    fn list_is_still_only_if_nothing_changed() {
        assert_eq!(decide_evidence(LIST, &pass()), ListEvidence::Still);
        let cases = [
            (PassFacts { before: Some(31), ..pass() }, EvidenceGap::ListChanged),
            (PassFacts { after: Some(29), ..pass() }, EvidenceGap::ListChanged),
            (PassFacts { changed: Some(1), ..pass() }, EvidenceGap::ListChanged),
            (PassFacts { changed: None, ..pass() }, EvidenceGap::ChangesUncounted),
            (PassFacts { before: None, changed: None, ..pass() }, EvidenceGap::ChangesUncounted),
        ];
        for (facts, expected) in cases {
            assert_eq!(gap(LIST, facts), expected, "{facts:?}");
        }
    }

    #[test]
    fn one_page_is_a_snapshot_if_it_has_as_many_records_as_are_counted() {
        let single = PassFacts { pages: 1, before: None, changed: None, ..pass() };
        let list = ListTraits { counts_changes: false, ..LIST };
        assert_eq!(decide_evidence(list, &single), ListEvidence::Still);
        assert_eq!(gap(list, PassFacts { after: Some(31), ..single }), EvidenceGap::CountIsHigher);
        assert_eq!(gap(list, PassFacts { after: None, ..single }), EvidenceGap::NoTotal);
        let empty = PassFacts { after: Some(0), ..PassFacts::default() };
        assert_eq!(decide_evidence(list, &empty), ListEvidence::Still);
        let overlap = ListTraits { links: PageLinks::Overlap, ..list };
        assert_eq!(
            gap(overlap, PassFacts { is_linked: true, ..PassFacts::default() }),
            EvidenceGap::EmptyList
        );
    }

    #[test]
    fn repeated_and_nameless_records_are_no_evidence_for_any_list() {
        for links in [PageLinks::Keys, PageLinks::Overlap, PageLinks::Nothing] {
            let list = ListTraits { links, ..LIST };
            let repeated = ReadCounts { positions: 31, ..pass().read };
            assert_eq!(gap(list, PassFacts { read: repeated, ..linked() }), EvidenceGap::Repeats);
            let nameless = ReadCounts { positions: 31, nameless: 1, ..pass().read };
            assert_eq!(gap(list, PassFacts { read: nameless, ..linked() }), EvidenceGap::Nameless);
        }
    }

    #[test]
    fn declared_list_is_evidence_and_the_weakest_partition_decides() {
        let declared = ListTraits { is_declared: true, ..LIST };
        assert_eq!(decide_evidence(declared, &linked()), ListEvidence::Declared);
        assert_eq!(decide_evidence(declared, &pass()), ListEvidence::Still);
        let missing = ListEvidence::Missing(EvidenceGap::NoTotal);
        let weakest = ListEvidence::weakest([ListEvidence::Overlap, missing, ListEvidence::Declared]);
        assert_eq!(weakest, missing);
        assert_eq!(ListEvidence::weakest([]).gap(), Some(EvidenceGap::Unchecked));
    }

    #[test]
    fn partitions_that_contain_fewer_records_than_the_source_are_no_evidence() {
        let of = |weakest, read| evidence_of_partitions(weakest, read, 100);
        assert_eq!(of(ListEvidence::Overlap, 100), ListEvidence::Overlap);
        assert_eq!(of(ListEvidence::Overlap, 99).gap(), Some(EvidenceGap::PartitionsChanged));
        assert_eq!(of(ListEvidence::Declared, 99), ListEvidence::Declared);
    }

    #[test]
    fn words_of_evidence_are_unique_and_parse() {
        for (evidence, word) in WORDS {
            assert_eq!((evidence.as_str(), ListEvidence::parse(Some(word))), (word, evidence));
        }
        assert_eq!(ListEvidence::parse(None).gap(), Some(EvidenceGap::Unchecked));
    }

    #[test]
    fn proof_of_absence_needs_evidence_of_both_syncs() {
        let missing = ListEvidence::Missing(EvidenceGap::NoTotal);
        let ids = || vec!["a".to_owned()];
        assert!(AbsentRecords::missed_twice(ListEvidence::Overlap, ListEvidence::Still, ids()).is_some());
        assert!(AbsentRecords::missed_twice(missing, ListEvidence::Still, ids()).is_none());
        assert!(AbsentRecords::missed_twice(ListEvidence::Still, missing, ids()).is_none());
        assert!(AbsentRecords::replaced(missing, ids()).is_none());
    }
}
