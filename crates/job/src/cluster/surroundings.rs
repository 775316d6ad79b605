//! Where detection looks: the variables of a process and the names of its host. Knows no system's variables.

use std::ffi::OsString;
use std::str::FromStr;

use super::names;

/// A process's environment, and the names of the host that it is on.
///
/// Both are functions, so that a detection can be tried without the cluster:
///
/// ```
/// use torchrs_job::cluster::{ClusterTask, Surroundings};
/// let value = |name: &str| (name == "PMIX_RANK").then(|| "3".into());
/// let around = Surroundings::new(&value, &|| vec!["node7".to_owned()]);
/// assert_eq!(ClusterTask::detect(&around).found.unwrap().rank, 3);
/// ```
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    own_names: &'a dyn Fn() -> Vec<String>,
}

impl<'a> Surroundings<'a> {
    /// With `variable`, which gives a variable's value, and `own_names`, which gives all names of this host.
    /// A host without names is not compared with the hosts that variables name.
    pub fn new(
        variable: &'a dyn Fn(&str) -> Option<OsString>,
        own_names: &'a dyn Fn() -> Vec<String>,
    ) -> Self {
        Surroundings { variable, own_names }
    }

    /// Those of the process that calls.
    ///
    /// ```
    /// use torchrs_job::cluster::{ClusterHosts, Surroundings};
    /// let detected = ClusterHosts::detect(&Surroundings::of_this_process());
    /// println!("{:?}, not believed: {:?}", detected.found, detected.doubts);
    /// ```
    pub fn of_this_process() -> Surroundings<'static> {
        Surroundings { variable: &variable_of_this_process, own_names: &names::names_of_this_host }
    }

    /// A variable's text without blanks around it. One that is empty counts as absent.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = (self.variable)(name)?.into_string().ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub(super) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// The first of `names` that is set.
    pub(super) fn first(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| Some((*name, self.text(name)?)))
    }

    /// The first of `names` that is a number.
    pub(super) fn first_number(&self, names: &[&'static str]) -> Option<(&'static str, usize)> {
        names.iter().find_map(|name| Some((*name, self.number(name)?)))
    }

    /// All names of this host; none where they are not known.
    pub(super) fn own_names(&self) -> Vec<String> {
        (self.own_names)()
    }

    /// Why `host`, which `variable` names, is another host than this.
    pub(super) fn elsewhere(&self, variable: &str, host: &str) -> Option<String> {
        let own = self.own_names();
        if own.is_empty() || own.iter().any(|name| names::is_same_host(name, host)) {
            return None;
        }
        Some(format!(
            "{variable}={host} is another host than this, which is {}: the variables were set \
             there, and brought here by ssh or a copied environment. If it is this host, under a name \
             that only the cluster knows, say the place by hand: RANK and WORLD_SIZE for a worker, \
             options for the launcher",
            own.join(", ")
        ))
    }
}

fn variable_of_this_process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// What a detection came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detected<T> {
    /// What was found, if anything.
    pub found: Option<T>,
    /// What is half there, and therefore not believed or not used; a line each. A caller that goes on alone
    /// should show them: variables of a real cluster may be among them.
    pub doubts: Vec<String>,
}
