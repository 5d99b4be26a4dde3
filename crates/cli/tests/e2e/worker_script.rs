//! x
use crate::stage::Stage;
pub(crate) struct Roles;
impl Roles {
    pub(crate) fn new(_s: &Stage, _p: &str) -> Self {
        Self
    }
}
