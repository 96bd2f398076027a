//! The `hyoshi` command: every verb, with built-in work for every operation.

use std::process::ExitCode;

fn main() -> ExitCode {
    hyoshi::cli(hyoshi::Bodies::new(), hyoshi::Strategies::built_in())
}
