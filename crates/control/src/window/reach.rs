//! The CPUs for a task's window if its threads are bound to CPUs.

use alloc::vec::Vec;

/// How many of a task's threads may run on each of the CPUs that have windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    cpus: Vec<(u32, usize)>,
    threads: usize,
}

impl Reach {
    /// Without threads.
    pub fn on(cpus: &[u32]) -> Self {
        Reach { cpus: cpus.iter().map(|cpu| (*cpu, 0)).collect(), threads: 0 }
    }

    /// Adds a thread, which may run where `may` is true.
    pub fn add(&mut self, may: impl Fn(u32) -> bool) {
        self.threads += 1;
        self.cpus.iter_mut().filter(|(cpu, _)| may(*cpu)).for_each(|(_, threads)| *threads += 1);
    }

    /// The CPUs on which most of the threads may run, which is all of them if there is such a CPU: a window raises its
    /// threads on one CPU. None if no thread may run on any.
    pub fn best(&self) -> Vec<u32> {
        let most = self.cpus.iter().map(|(_, threads)| *threads).max().unwrap_or(0);
        let best = self.cpus.iter().filter(|(_, threads)| *threads == most && (most > 0 || self.threads == 0));
        best.map(|(cpu, _)| *cpu).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn a_task_with_threads_bound_to_different_cpus_is_placed_where_most_may_run() {
        let mut reach = Reach::on(&[0, 1, 2]);
        assert_eq!(reach.best(), [0, 1, 2], "who has no threads is bound to nothing");
        reach.add(|cpu| cpu < 2);
        assert_eq!(reach.best(), [0, 1]);
        reach.add(|cpu| cpu > 0);
        assert_eq!(reach.best(), [1]);
        reach.add(|cpu| cpu == 2);
        assert_eq!(reach.best(), [1, 2]);
        let mut nowhere = Reach::on(&[0, 1]);
        nowhere.add(|cpu| cpu == 7);
        assert_eq!(nowhere.best(), vec![0; 0]);
    }

    proptest! {
        #[test]
        fn it_is_where_all_may_run_if_there_is_such_a_cpu_and_where_most_may_otherwise(
            threads in prop::collection::vec(0u8..64, 1..8),
        ) {
            let cpus = [0, 1, 2, 3, 4, 5];
            let mut reach = Reach::on(&cpus);
            threads.iter().for_each(|mask| reach.add(|cpu| mask >> cpu & 1 == 1));
            let on = |cpu: u32| threads.iter().filter(|mask| **mask >> cpu & 1 == 1).count();
            let (best, all) = (reach.best(), threads.iter().fold(63, |all, mask| all & mask));
            prop_assert!(all == 0 || cpus.iter().all(|cpu| best.contains(cpu) == (all >> cpu & 1 == 1)));
            let is_best = |cpu: u32| on(cpu) > 0 && cpus.iter().all(|other| on(*other) <= on(cpu));
            prop_assert!(cpus.iter().all(|cpu| best.contains(cpu) == is_best(*cpu)));
        }
    }
}
