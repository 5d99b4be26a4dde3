//! Common code of all lifecycles, each of which is a function from state and event to state.

/// Returns every legal transition once, without those from a state to itself.
pub(crate) fn pairs<S: Copy + PartialEq, E: Copy>(
    states: &[S],
    events: &[E],
    next: impl Fn(S, E) -> Option<S>,
) -> Vec<(S, S)> {
    let mut pairs = Vec::new();
    for &from in states {
        for &event in events {
            if let Some(to) = next(from, event)
                && from != to
                && !pairs.contains(&(from, to))
            {
                pairs.push((from, to));
            }
        }
    }
    pairs
}
