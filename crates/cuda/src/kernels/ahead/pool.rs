//! Threads that take programs from lists, the likeliest first.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

/// Programs that were needed together.
pub(super) struct List {
    lines: Vec<String>,
    /// Of this very executable, and so likelier than any other.
    own: bool,
}

impl List {
    pub(super) fn of_executable(lines: Vec<String>) -> List {
        List { lines, own: true }
    }

    pub(super) fn of_model(lines: impl Iterator<Item = String>) -> List {
        List { lines: lines.collect(), own: false }
    }
}

struct State {
    lists: Vec<List>,
    /// What the process had to compile itself.
    missed: Vec<String>,
    /// What a thread, or the process itself, has taken.
    taken: HashSet<String>,
}

impl State {
    /// What is likeliest and not taken, now taken.
    fn take(&mut self) -> Option<String> {
        let hits =
            |list: &List| self.missed.iter().filter(|line| list.lines.contains(line)).count();
        let mut lists: Vec<(usize, &List)> =
            self.lists.iter().map(|list| (hits(list), list)).collect();
        lists.retain(|(hits, list)| list.own || 2 * hits >= self.missed.len());
        // The sort keeps the order of equals.
        lists.sort_by_key(|(hits, list)| std::cmp::Reverse((list.own, *hits)));
        let lines = lists.into_iter().flat_map(|(_, list)| &list.lines);
        let next = lines.into_iter().find(|line| !self.taken.contains(*line))?.clone();
        self.taken.insert(next.clone());
        Some(next)
    }
}

struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

/// The threads, which live as long as the process.
pub(super) struct Pool(Arc<Shared>);

impl Pool {
    /// Starts threads, each of which calls `compile` for one line after the other. It gives `false` for a line of which no
    /// program is known yet.
    pub(super) fn begin(
        lists: Vec<List>,
        threads: usize,
        compile: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Pool {
        let state = State { lists, missed: vec![], taken: HashSet::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), more: Condvar::new() });
        let compile = Arc::new(compile);
        for _ in 0..threads {
            let (shared, compile) = (shared.clone(), compile.clone());
            // Without the thread it takes longer.
            let _ = thread::Builder::new()
                .name("torchrs-kernels".to_owned())
                .spawn(move || shared.work(&*compile));
        }
        Pool(shared)
    }

    /// Says that the process compiles this program itself.
    pub(super) fn missed(&self, line: String) {
        let mut state = self.0.state.lock();
        state.taken.insert(line.clone());
        state.missed.push(line);
        self.0.more.notify_all();
    }
}

impl Shared {
    fn work(&self, compile: &dyn Fn(&str) -> bool) {
        // Lines without a program, and how many misses there were when they were taken.
        let (mut unknown, mut misses) = (Vec::new(), 0);
        loop {
            let line = {
                let mut state = self.state.lock();
                loop {
                    // Another miss, which may have come while nobody waited: the ops may have told their programs since.
                    if state.missed.len() > misses {
                        misses = state.missed.len();
                        unknown.drain(..).for_each(|line| _ = state.taken.remove(&line));
                    }
                    // Nothing is likely before the first is missed.
                    let next = if state.missed.is_empty() { None } else { state.take() };
                    match next {
                        Some(line) => break line,
                        None => self.more.wait(&mut state),
                    }
                }
            };
            if !compile(&line) {
                unknown.push(line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn state(own: &str, models: &[&str], missed: &str) -> State {
        let model = |text: &&str| List::of_model(lines(text).into_iter());
        let mut lists = vec![List::of_executable(lines(own))];
        lists.extend(models.iter().map(model));
        let missed = lines(missed);
        State { lists, taken: missed.iter().cloned().collect(), missed }
    }

    fn all(mut state: State) -> String {
        std::iter::from_fn(|| state.take()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_list_with_most_of_what_was_missed_goes_first_behind_the_executables_own() {
        assert_eq!(all(state("o a", &["a x", "a b y"], "a b")), "o y x");
        assert_eq!(
            all(state("a", &["a x", "z"], "a")),
            "x",
            "a list without any of it is left alone"
        );
    }

    #[test]
    fn nothing_is_compiled_before_something_is_missed_and_nothing_twice() {
        let (told, said) = mpsc::channel();
        let list = List::of_model(lines("a b c").into_iter());
        let told = Mutex::new(told);
        let pool =
            Pool::begin(vec![list], 3, move |line| told.lock().send(line.to_owned()).is_ok());
        assert!(said.recv_timeout(std::time::Duration::from_millis(20)).is_err());
        pool.missed("a".to_owned());
        let mut got = [said.recv().unwrap(), said.recv().unwrap()];
        got.sort();
        assert_eq!(got, ["b", "c"]);
        pool.missed("b".to_owned());
        assert!(said.recv_timeout(std::time::Duration::from_millis(20)).is_err());
    }

    #[test]
    fn a_program_that_is_not_known_yet_is_tried_again_at_the_next_miss() {
        let (told, said) = mpsc::channel();
        let told = Mutex::new(told);
        let list = List::of_model(lines("a b").into_iter());
        let pool = Pool::begin(vec![list], 1, move |line| {
            told.lock().send(line.to_owned()).unwrap();
            // The next miss comes before the thread waits again.
            std::thread::sleep(std::time::Duration::from_millis(20));
            false
        });
        for miss in ["a", "c"] {
            pool.missed(miss.to_owned());
            assert_eq!(said.recv().unwrap(), "b");
        }
    }
}
