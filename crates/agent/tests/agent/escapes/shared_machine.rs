//! Jobs that attack what the agents of a machine share.

use super::{not_tested, outputs};
use rustix::process::geteuid;

/// A task that holds the lock would stop the start of all other tasks of the machine.
#[tokio::test]
async fn task_cannot_read_or_lock_the_registry_of_user_ids() {
    if !geteuid().is_root() {
        return not_tested("an agent that is not root has no registry of user ids");
    }
    let script = "dir=/run/tidemill/task-users; ls $dir > /dev/null 2>&1 && echo lists; \
                  (exec 9< $dir/lock && flock -w 60 9 && echo locks) 2> /dev/null; \
                  cat $dir/[0-9]* > /dev/null 2>&1 && echo reads; true";
    let Some([isolated, control]) = outputs(script).await else { return };
    assert_eq!(isolated, "");
    assert_eq!(control, "stdout: lists\nstdout: locks\nstdout: reads");
}
