//! The choice of a CPU for each processor.

use std::collections::BTreeMap;

use hyoshi_model::Processor;

use crate::claim::OccupiedCpu;
use crate::ended::RunNote;
use crate::start_error::StartError;

/// Chooses a CPU for each processor, in order: the one of the file; otherwise an unused one, from the last allowed CPU
/// down, because interrupts and housekeeping are mostly on the first; otherwise a shared one, which is noted.
///
/// CPUs in `occupied` are chosen last, and rejected if the file sets them. If sharing is allowed, `occupied` is empty.
pub(crate) fn choose_cpus(
    processors: &[&Processor],
    allowed: &[u32],
    occupied: &BTreeMap<u32, OccupiedCpu>,
) -> Result<(Vec<u32>, Vec<RunNote>), StartError> {
    let mut cpus = Vec::with_capacity(processors.len());
    for processor in processors {
        if let Some(cpu) = processor.cpu.filter(|cpu| !allowed.contains(cpu)) {
            let (processor, allowed) = (processor.name.clone(), allowed.to_vec());
            return Err(StartError::NoSuchCpu { processor, cpu, allowed });
        }
        cpus.push(processor.cpu);
    }
    for index in 0..cpus.len() {
        let users = |cpu: &u32| cpus.iter().filter(|used| **used == Some(*cpu)).count();
        // Of equally used CPUs the last.
        let least =
            allowed.iter().rev().filter(|cpu| !occupied.contains_key(cpu)).min_by_key(|cpu| users(cpu)).copied();
        cpus[index] = cpus[index].or(least).or(allowed.last().copied());
    }
    for (processor, cpu) in processors.iter().zip(&cpus) {
        if let Some(by) = cpu.and_then(|cpu| occupied.get(&cpu)) {
            return Err(StartError::Occupied { processor: processor.name.clone(), by: by.clone() });
        }
    }
    let cpus: Vec<u32> = cpus.into_iter().map(|cpu| cpu.unwrap_or(0)).collect();
    let shared = allowed.iter().filter_map(|cpu| {
        let on = |(_, used): &(_, &u32)| *used == cpu;
        let named = processors.iter().zip(&cpus).filter(on);
        let processors: Vec<String> = named.map(|(processor, _)| processor.name.clone()).collect();
        (processors.len() > 1).then_some(RunNote::SharedCpu { processors, cpu: *cpu })
    });
    let notes = shared.collect();
    Ok((cpus, notes))
}

#[cfg(test)]
mod tests {
    use hyoshi_model::System;

    use super::*;

    fn choose_cpus(
        system: &System,
        allowed: &[u32],
        occupied: &BTreeMap<u32, OccupiedCpu>,
    ) -> Result<(Vec<u32>, Vec<RunNote>), StartError> {
        super::choose_cpus(&system.processors.iter().collect::<Vec<_>>(), allowed, occupied)
    }

    fn system(cpus: &[Option<u32>]) -> System {
        let mut text = "name = \"t\"\nduration = \"1s\"\n".to_owned();
        for (index, cpu) in cpus.iter().enumerate() {
            let cpu = cpu.map_or(String::new(), |cpu| format!("cpu = {cpu}\n"));
            text += &format!("[processor.p{index}]\nstrategy = \"RMS\"\n{cpu}");
            text += &format!("[operation.o{index}]\non = \"p{index}\"\nevery = \"1s\"\nwcet = \"1ms\"\n");
        }
        hyoshi_model::read(&text, "t", None).unwrap().system
    }

    #[test]
    fn processors_without_a_cpu_get_one_of_their_own_from_the_last_down() {
        let (cpus, notes) = choose_cpus(&system(&[None, Some(3), None]), &[0, 1, 2, 3], &BTreeMap::new()).unwrap();
        assert_eq!((cpus, notes), (vec![2, 3, 1], vec![]));
    }

    #[test]
    fn fewer_cpus_than_processors_are_shared_evenly_and_noted() {
        let (cpus, notes) = choose_cpus(&system(&[None, None, None]), &[0, 1], &BTreeMap::new()).unwrap();
        assert_eq!(cpus, [1, 0, 1]);
        assert!(matches!(&notes[..], [RunNote::SharedCpu { cpu: 1, processors }] if processors.len() == 2));
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_that_names_those_that_are() {
        let error = choose_cpus(&system(&[Some(77)]), &[0, 1], &BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("CPU 77") && error.to_string().contains("0-1"), "{error}");
    }

    #[test]
    fn a_cpu_of_another_run_is_avoided_where_the_file_leaves_it_open_and_refused_where_not() {
        let by = |cpu| (cpu, OccupiedCpu { cpu, pid: Some(77), by: "a run of hyoshi".into() });
        let (cpus, _) = choose_cpus(&system(&[None, None]), &[0, 1, 2], &BTreeMap::from([by(2)])).unwrap();
        assert_eq!(cpus, [1, 0]);
        for (asked, occupied) in [(Some(2), vec![2]), (None, vec![0, 1, 2])] {
            let occupied = occupied.into_iter().map(by).collect();
            let error = choose_cpus(&system(&[asked]), &[0, 1, 2], &occupied).unwrap_err();
            let error = format!("{error}; {}", error.remedy());
            assert!(
                error.contains("CPU 2") && error.contains("process 77") && error.contains("--share-cpu"),
                "{error}"
            );
        }
    }
}
