//! Reads IDL files and prints their declarations or errors: `cargo run --example read_idl -- [-I DIR] [-DNAME] FILE...`

use std::path::Path;
use std::process::ExitCode;

use hyoshi_idl::{ReadOptions, read};

fn main() -> ExitCode {
    let (mut options, mut sound) = (ReadOptions::default(), true);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if let Some(name) = argument.strip_prefix("-D") {
            options.defines.push((name.to_string(), "1".to_string()));
            continue;
        }
        if argument == "-I" {
            options.includes.extend(arguments.next().map(Into::into));
            continue;
        }
        match read(Path::new(&argument), &options) {
            Ok(specification) => {
                specification.warnings.iter().for_each(|warning| eprintln!("{warning}\n"));
                for definition in specification.definitions.iter().filter(|definition| !definition.included) {
                    println!("{} {:#?}", definition.repository_id, definition.kind);
                }
            }
            Err(errors) => {
                eprint!("{errors}");
                sound = false;
            }
        }
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
