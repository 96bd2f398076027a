//! Reads a system file and prints its meaning: `cargo run -p hyoshi-model --example read FILE`.

fn main() -> std::process::ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("usage: read FILE");
        return std::process::ExitCode::from(2);
    };
    match hyoshi_model::read_file(file) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                eprintln!("{warning}\n");
            }
            println!("{:#?}", loaded.system);
            std::process::ExitCode::SUCCESS
        }
        Err(errors) => {
            eprint!("{errors}");
            std::process::ExitCode::from(2)
        }
    }
}
