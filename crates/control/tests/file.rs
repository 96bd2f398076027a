//! A file's programs under the laws: their requests, and the reservations that a host's CPUs admit.

use hyoshi_control::Reason;
use hyoshi_control::file::{
    AdmissionVerdict, Admitted, HostAdmission, admit, advocate, groups, most, policy, promises, spec,
};
use hyoshi_model::{AdvocateWords, HostId, ProgramId, Share, Span, System, read};
use proptest::prelude::*;

const MS: Span = Span::from_millis(1);

fn system(text: &str) -> System {
    read(&format!("name = 'one'\n{text}"), "one.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

fn of(system: &System) -> HostAdmission {
    admit(system, HostId(0)).unwrap()
}

fn program(name: &str, period: u64, takes: u64, importance: u32) -> String {
    format!(
        "[reservation.{name}]\nprogram = ['{name}']\nperiod = '{period}ms'\ntakes = '{takes}ms'\n\
         advocate = [{{ max_decay = {{ headroom = '0%' }} }}]\nimportance = {importance}\n"
    )
}

#[test]
fn the_request_of_a_program_follows_from_its_advocates() {
    let asks = |rest: &str| {
        let system = system(&format!("[reservation.p]\nprogram = ['p']\nperiod = '100ms'\n{rest}"));
        most(&system.brokered.programs[0]).unwrap().budget()
    };
    assert_eq!(asks("takes = '20ms'"), MS * 21, "max-decay, with its headroom");
    assert_eq!(asks("takes = '20ms'\nbudget = '30ms'"), MS * 30, "what it begins with, if that is more");
    assert_eq!(asks("takes = '20ms'\nadvocate = [{ rate = '35%' }]"), MS * 35);
    assert_eq!(asks("takes = '90ms'\nadvocate = [{ max-decay = {} }, { cap = '60%' }]"), MS * 60);
    assert_eq!(
        asks("advocate = [{ max_decay = { reports = 3 } }, { cap = '60%' }]"),
        MS * 60,
        "anything, up to the cap"
    );
    assert_eq!(asks(""), MS * 100, "anything");
    // Requests of external advocates are unknown beforehand: the least useful budget counts.
    let elsewhere = "advocate = [{ max_decay = 5 }, { external = 'file:adviser.ior' }, { cap = '60%' }]\n";
    assert_eq!(asks(&format!("{elsewhere}least = '12ms'\ntakes = '20ms'")), MS * 12);
    assert_eq!(asks(&format!("{elsewhere}least = '12ms'\nbudget = '15ms'")), MS * 15);
    assert_eq!(asks("advocate = [{ library = '/a.so' }]\nbudget = '15ms'"), MS * 15);
}

#[test]
fn advocates_from_elsewhere_are_read_with_what_they_need() {
    let read = |kind: &str, given: &[(&str, &str)]| {
        let parameters = given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        advocate(&AdvocateWords { kind: kind.to_owned(), parameters }).map_err(|(what, help)| format!("{what}: {help}"))
    };
    assert_eq!(read("external", &[("", "IOR:00")]), Ok(()));
    assert_eq!(read("external", &[("object", "IOR:00"), ("timeout", "20ms")]), Ok(()));
    assert_eq!(read("library", &[("path", "/a.so"), ("margin", "20")]), Ok(()));
    let needs = "`library` needs its `path`: add the library's absolute path: \"/DIR/NAME.so\"";
    assert_eq!(read("library", &[]), Err(needs.to_owned()));
    let stray = "`external` has no parameter `patience`: its parameters are object, timeout";
    assert_eq!(read("external", &[("", "IOR:00"), ("patience", "5ms")]), Err(stray.to_owned()));
    let twice = "`path` of `library` is repeated: remove one of them";
    assert_eq!(read("library", &[("path", "/a.so"), ("", "/b.so")]), Err(twice.to_owned()));
}

#[test]
fn the_paper_s_figure_5_is_admitted_on_one_cpu() {
    let text = program("first", 250, 95, 10) + &program("second", 250, 125, 5) + &program("third", 250, 40, 7);
    let admission = of(&system(&format!("broker = {{ cap = '93%' }}\n{text}")));
    let held = |at: usize| admission.programs[at].held.map(|held| held.budget());
    // 93 % of 250 ms are 232.5 ms: the least important gets the rest.
    assert_eq!((held(0), held(2)), (Some(MS * 95), Some(MS * 40)));
    assert_eq!(held(1), Some(Span::from_micros(97_500)));
    let second = &admission.programs[1];
    assert_eq!((second.verdict(), second.because[0].0), (AdmissionVerdict::Refused, ProgramId(0)));
    assert_eq!(admission.programs[0].verdict(), AdmissionVerdict::Admitted);
}

#[test]
fn less_than_requested_is_enough_down_to_the_least_of_the_file() {
    let second = program("second", 100, 50, 1).replace("takes", "least = '20ms'\ntakes");
    let admission = of(&system(&(program("first", 100, 40, 2) + &second)));
    assert_eq!(admission.programs[1].verdict(), AdmissionVerdict::Cut);
    assert!(matches!(admission.programs[1].reason, Reason::Cut(_)));
}

#[test]
fn lanes_of_the_same_cpu_come_first() {
    let lanes = "[processor.main]\ncpu = 0\n[operation.steer]\nevery = '20ms'\nwcet = '10ms'\n";
    let of_lanes = |text: &str| of(&system(&format!("{text}{}", program("p", 50, 20, 1))));
    let alone = of_lanes("");
    assert_eq!(alone.programs[0].verdict(), AdmissionVerdict::Admitted);
    assert_eq!(
        alone.programs[0].response,
        Some(Span::from_micros(44_200)),
        "in slices, the last one ends before the deadline"
    );
    let beside = of_lanes(lanes);
    assert_eq!(beside.lanes, [(0, Share::from_percent(50))]);
    let one = &beside.programs[0];
    // Two whole jobs of the lane, or three, if the first was late: 20 ms of 50 ms are not always left.
    assert_eq!((one.verdict(), one.reason), (AdmissionVerdict::Refused, Reason::Scheduler));
    assert!(one.held.is_some_and(|held| held.budget() < MS * 20 && held.budget() > MS * 10), "{one:?}");
    let elsewhere = of_lanes(&format!("broker = {{ cpus = [1] }}\n{lanes}"));
    assert_eq!(elsewhere.programs[0].verdict(), AdmissionVerdict::Admitted);
    assert_eq!(elsewhere.programs[0].seat.map(|seat| seat.cpu), Some(1));
    // One that names no CPU may be on any.
    let anywhere = of_lanes(&format!("broker = {{ cpus = [1] }}\n{}", lanes.replace("cpu = 0\n", "")));
    assert_eq!(anywhere.programs[0].verdict(), AdmissionVerdict::Refused);
}

#[test]
fn words_of_a_file_mean_what_they_mean_on_a_command_line() {
    let system = system(
        "[reservation.p]\nprogram = ['p']\nperiod = '1s'\nadvocate = [{ max_decay = { reports = 10 } }, { cap = '60%' }]\n",
    );
    let specs: Vec<String> =
        system.brokered.programs[0].advocates.iter().map(|words| spec(words).unwrap().to_string()).collect();
    assert_eq!(specs, ["max-decay --reports 10 --headroom 5%", "cap --share 60%"]);
    let partition = policy("partition(video 40% strict, rest 30% weighted)").unwrap();
    assert_eq!(groups(&partition), ["video", "rest"]);
    assert!(policy("fairly").unwrap_err().0.contains("`fairly`"));
}

fn drawn() -> impl Strategy<Value = String> {
    let one = (1u64..20, 1u64..60, 0u32..4, any::<bool>());
    let lane = (1u64..10, 1u64..5);
    (prop::collection::vec(one, 1..6), prop::collection::vec(lane, 0..3), 1u64..150, 1usize..3).prop_map(
        |(programs, lanes, cap, cpus)| {
            let cpus = &["[0]", "[0, 1]"][cpus - 1];
            let mut text = format!("broker = {{ cap = '{cap}%', cpus = {cpus} }}\n[processor.main]\ncpu = 0\n");
            for (at, (period, share, importance, least)) in programs.into_iter().enumerate() {
                let takes = (period * 5 * share / 100).max(1);
                text += &program(&format!("p{at}"), period * 5, takes, importance);
                text += if least { "least = '1ms'\n" } else { "" };
            }
            for (at, (period, wcet)) in lanes.into_iter().enumerate() {
                text += &format!("[operation.o{at}]\nevery = '{}ms'\nwcet = '{wcet}ms'\n", period * 10);
            }
            text
        },
    )
}

proptest! {
    #[test]
    fn what_is_admitted_fits(text in drawn()) {
        let system = system(&text);
        let admission = of(&system);
        prop_assert!(admission.reserved <= admission.cap);
        prop_assert_eq!(&admission, &of(&system), "the same file is admitted alike");
        for one in &admission.programs {
            prop_assert!(one.held.is_none_or(|held| held.budget() <= one.asked.budget()));
            prop_assert_eq!(one.held.is_some(), one.seat.is_some());
            if one.held.is_some() {
                prop_assert!(one.response.is_some_and(|response| response <= one.asked.deadline()));
            }
            let Admitted { least, .. } = one;
            if one.verdict() == AdmissionVerdict::Cut {
                prop_assert!(one.held.map(|held| held.budget()) >= *least);
            }
        }
        for promise in promises(&system, HostId(0), 0) {
            prop_assert!(promise.budget <= promise.period);
        }
    }
}
