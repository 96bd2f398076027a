//! Verdicts and repository ids compared with those of `omniidl` (Debian packages `omniidl` and `omniorb-idl`), file by
//! file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hyoshi_idl::{DefinitionId, DefinitionKind, ReadOptions, Specification, read};

/// Files that Hyoshi accepts and omniidl rejects, and why.
const WE_TAKE: [(&str, &str); 3] = [
    ("modern.idl", "IDL 4.2: sized integers, annotations, structs that extend others, `>>`; and of CORBA 3, `typeid`"),
    ("mutual.idl", "structs that hold each other through sequences, which the standard leaves out and Rust can say"),
    ("standard_sequences.idl", "orb.idl is known without being found"),
];

/// Files that Hyoshi rejects and omniidl accepts, and why.
const WE_REFUSE: [(&str, &str); 3] = [
    ("too_large.idl", "values that no GIOP message can hold"),
    ("unsupported_included.idl", "value types of an included file are known, and refused where they are used"),
    ("value_types.idl", "value types are outside of what the ORB speaks"),
];

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn omniidl(path: &Path, arguments: &[&str]) -> std::process::Output {
    let dir = path.parent().unwrap();
    let mut command = Command::new("omniidl");
    command.current_dir(dir).arg("-I.").args(arguments).arg(path.file_name().unwrap());
    command.output().unwrap()
}

/// True if omniidl is installed; prints it if not.
fn installed() -> bool {
    let there = Command::new("omniidl").arg("-V").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("SKIPPED: omniidl is not installed (Debian packages omniidl and omniorb-idl)");
    }
    there
}

fn files(dir: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(tests().join(dir)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "idl"));
    if dir == "good" {
        files.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../naming/idl/CosNaming.idl"));
    }
    files.sort();
    files
}

/// IDL of the standard's services, as Debian's package omniorb-idl installs it.
const SERVICES: &str = "/usr/share/idl/omniORB";

/// Of those, the ones that declare value types.
const WITH_VALUES: [&str; 3] = ["boxes.idl", "messaging.idl", "pollable.idl"];

#[test]
fn the_standards_services_are_read_as_by_omniidl() {
    if !installed() {
        return;
    }
    let services = Path::new(SERVICES);
    let includes = vec![services.to_path_buf(), services.join("COS")];
    let options = ReadOptions { includes, defines: vec![("__OMNIIDL__".into(), "1".into())] };
    let back_end = format!("-p{}", tests().join("omniidl").display());
    let arguments: [&str; 4] = [&format!("-I{SERVICES}"), &format!("-I{SERVICES}/COS"), &back_end, "-brepository_ids"];
    let directories =
        [services.to_path_buf(), services.join("COS")].into_iter().filter_map(|dir| fs::read_dir(dir).ok());
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for path in directories.flatten().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".idl") || WITH_VALUES.contains(&name) {
            continue;
        }
        let output = omniidl(&path, &arguments);
        match (read(&path, &options), output.status.success()) {
            (Ok(specification), true) => {
                let theirs = String::from_utf8(output.stdout).unwrap();
                let theirs: BTreeSet<String> = theirs.lines().map(str::to_string).collect();
                // It omits forward declarations in some places and prints them in others.
                let ours = ids(&specification);
                if !ours.is_subset(&theirs) || theirs.len() > ours.len() + 1 {
                    wrong.push(format!("{name}: {:?}", ours.symmetric_difference(&theirs)));
                }
                compared += 1;
            }
            (Err(_), false) => {}
            (Err(errors), true) => wrong.push(format!("{name}:\n{errors}")),
            (Ok(_), false) => wrong.push(format!("{name}: omniidl refuses it")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    match compared {
        0 => eprintln!("SKIPPED: {SERVICES} is not there (Debian package omniorb-idl)"),
        _ => assert!(compared > 50, "{compared} files"),
    }
}

fn ours(path: &Path) -> Option<Specification> {
    read(path, &ReadOptions { includes: vec![tests().join("good")], ..ReadOptions::default() }).ok()
}

#[test]
fn verdicts_are_those_of_omniidl_but_for_what_is_listed() {
    if !installed() {
        return;
    }
    let mut wrong = Vec::new();
    for path in files("good").into_iter().chain(files("bad")) {
        let name = path.file_name().unwrap().to_str().unwrap();
        // It crashes on some bad files: that is no verdict to compare, but not "good" either.
        let theirs = omniidl(&path, &["-bdump"]).status.success();
        let ours = ours(&path).is_some();
        let listed = |list: &[(&str, &str)]| list.iter().any(|(listed, _)| *listed == name);
        let expected = (theirs || listed(&WE_TAKE)) && !listed(&WE_REFUSE);
        if ours != expected {
            wrong.push(format!("{name}: omniidl {theirs}, we {ours}"));
        }
        if listed(&WE_TAKE) && theirs || listed(&WE_REFUSE) && !theirs {
            wrong.push(format!("{name} is listed, and does not differ"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The ids of the file itself, without forward declarations.
fn ids(specification: &Specification) -> BTreeSet<String> {
    let own = (0..specification.definitions.len()).map(|index| &specification[DefinitionId(index as u32)]);
    let forward = |kind: &DefinitionKind| matches!(kind, DefinitionKind::Interface(interface) if interface.forward);
    own.filter(|each| !each.included && !forward(&each.kind)).map(|each| each.repository_id.clone()).collect()
}

#[test]
fn repository_ids_are_those_of_omniidl() {
    if !installed() {
        return;
    }
    let back_end = format!("-p{}", tests().join("omniidl").display());
    let mut compared = 0;
    for path in files("good") {
        let output = omniidl(&path, &[&back_end, "-brepository_ids"]);
        if !output.status.success() {
            continue;
        }
        let theirs: BTreeSet<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect();
        assert_eq!(ids(&ours(&path).unwrap()), theirs, "{}", path.display());
        compared += 1;
    }
    assert!(compared >= 12, "{compared} files");
}
