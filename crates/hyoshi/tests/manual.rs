//! Completion scripts and manual pages: every verb and option is in them, and shells and man(1) take them.

use crate::common;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use common::Place;

/// Verbs of verbs, as help lists them, each with its flags.
fn verbs(place: &Place, of: &str, all: &mut Vec<(String, BTreeSet<String>)>) {
    let help = place.hyoshi(&format!("{of} --help")).exits(0).out;
    // `-h, --help` and `    --cap <SHARE>` begin lines; what follows is words.
    let flags = help.lines().filter_map(|line| {
        let mut words = line.split_whitespace().take_while(|word| word.starts_with('-'));
        words.find_map(|word| word.strip_prefix("--")).filter(|name| !name.is_empty()).map(str::to_owned)
    });
    all.push((of.trim().to_owned(), flags.collect()));
    // `hyoshi` itself lists its verbs in groups.
    let first = if of.is_empty() { "Describe and prove:" } else { "Commands:" };
    let listed = help.lines().skip_while(|line| *line != first).take_while(|line| *line != "Options:");
    let names: Vec<String> = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    for name in names {
        verbs(place, &format!("{of} {name}"), all);
    }
}

/// Gives a program its input and returns what it says; none, with a word about it, if it is not installed.
fn through(program: &str, arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C.UTF-8")
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("skipped: needs {program}");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // It may write before it has read everything.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn every_verb_and_option_is_completed_and_has_its_place_in_the_manual() {
    let place = Place::new();
    let mut all = Vec::new();
    verbs(&place, "", &mut all);
    assert!(all.len() > 30 && all.iter().any(|(verb, _)| verb == "broker advocate add"), "{all:?}");
    let said = place.hyoshi("man --dir pages").exits(0).out;
    assert_eq!(said, format!("{} pages in pages\n", all.len()));
    let scripts = ["bash", "zsh", "fish"].map(|shell| place.hyoshi(&format!("completion {shell}")).exits(0).out);
    for (verb, flags) in &all {
        let name = format!("hyoshi {verb}").trim().replace(' ', "-");
        let page = place.read(&format!("pages/{name}.1"));
        assert_eq!(page, place.hyoshi(&format!("man {verb}")).exits(0).out);
        for flag in flags {
            let escaped = flag.replace('-', "\\-");
            assert!(page.contains(&format!("\\-\\-{escaped}")), "{name}.1 lacks --{flag}:\n{page}");
            for script in &scripts {
                assert!(script.contains(flag.as_str()), "--{flag} of {verb} is not completed");
            }
        }
        let last = verb.rsplit(' ').next().unwrap();
        assert!(scripts.iter().all(|script| script.contains(last)), "{verb} is not completed");
        assert!(!page.contains("exec\\-watch"), "that is not for people");
    }
}

#[test]
fn the_shells_take_the_scripts() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.hyoshi(&format!("completion {shell}")).exits(0).out;
        if let Some((good, said)) = through(shell, &["-n"], &script) {
            assert!(good && said.is_empty(), "{shell}: {said}");
        }
    }
    let script = place.hyoshi("completion bash").exits(0).out;
    let ask = r#"COMP_WORDS=(hyoshi broker adv); COMP_CWORD=2; _hyoshi hyoshi adv broker; echo "${COMPREPLY[@]}""#;
    if let Some((good, said)) = through("bash", &["-s"], &format!("{script}\n{ask}\n")) {
        assert_eq!((good, said.trim()), (true, "advocate"));
    }
}

#[test]
fn man_takes_the_pages_without_a_warning() {
    let place = Place::new();
    for verb in ["", "run", "broker", "broker set", "exec"] {
        let page = place.hyoshi(&format!("man {verb}")).exits(0).out;
        if let Some((good, said)) = through("groff", &["-man", "-ww", "-z", "-Tutf8", "-k"], &page) {
            assert!(good && said.is_empty(), "man {verb}: {said}");
        }
        if let Some((good, said)) = through("man", &["--warnings", "-l", "-"], &page) {
            assert!(good && said.contains("SYNOPSIS"), "man {verb}: {said}");
        }
    }
    let refused = place.hyoshi("man broker stop").exits(2).err;
    assert!(refused.starts_with("error: `hyoshi broker` has no verb `stop`\nhelp: it has list, show, "), "{refused}");
    place.write("file", "");
    let refused = place.hyoshi("man --dir file/pages").exits(2).err;
    assert!(refused.starts_with("error: cannot write manual pages to file/pages: "), "{refused}");
}
