//! Places in lists that are not one id: JSON, so that whatever a name holds comes back as it was.

use crate::answer::Fail;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_wire::Fault;

/// A place as a text that travels.
pub(crate) fn write(place: &impl Serialize) -> String {
    serde_json::to_string(place).unwrap_or_default()
}

/// The place that a text says.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Fail> {
    let nul = text.contains("\\u0000");
    serde_json::from_str(text).ok().filter(|_| !nul).ok_or_else(|| {
        let problem = "is no cursor of this list: pass what `next` of the page before says".to_owned();
        Fail::invalid(vec![Fault { field: "after".to_owned(), problem }])
    })
}
