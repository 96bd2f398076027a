//! `hyoshi completion` and `hyoshi man`: completion scripts and manual pages, generated from the definition of the
//! command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;

use super::output::cannot_write;
use super::{CliError, Format, VerbOutcome, head, streams};

#[derive(Debug, Args)]
#[command(after_help = "For bash, in ~/.bashrc:\n  source <(hyoshi completion bash)\n\
                        For zsh, in a directory of $fpath:\n  hyoshi completion zsh > ~/.zfunc/_hyoshi\n\
                        For fish:\n  hyoshi completion fish > ~/.config/fish/completions/hyoshi.fish")]
pub(super) struct Completion {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "The page of a verb, and all pages where man(1) finds them:\n  \
                        hyoshi man broker set | man -l -\n  \
                        hyoshi man --dir ~/.local/share/man/man1")]
pub(super) struct Manual {
    /// The verb that the page is about; none for the command as a whole
    verb: Vec<String>,
    /// Write all pages to this directory, one file each
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    dir: Option<PathBuf>,
}

/// The command line under the name of this binary: a user's own binary has another.
fn command() -> Command {
    let called = std::env::args_os().next().and_then(|path| {
        let name = Path::new(&path).file_name()?.to_str()?;
        // The name becomes part of file names and scripts.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
    });
    super::command().name(called.unwrap_or_else(|| "hyoshi".to_owned()))
}

/// The script, whatever the format: it is for a shell.
pub(super) fn completion(completion: &Completion) -> Result<VerbOutcome, CliError> {
    let mut command = command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(completion.shell, &mut command, name, &mut script);
    streams::out(String::from_utf8_lossy(&script)).map(|()| VerbOutcome::Success)
}

pub(super) fn manual(manual: &Manual, format: Format) -> Result<VerbOutcome, CliError> {
    let mut command = command().disable_help_subcommand(true);
    command.build();
    let Some(directory) = &manual.dir else {
        let page = page(find(&command, &manual.verb)?)?;
        return streams::out(page).map(|()| VerbOutcome::Success);
    };
    fs::create_dir_all(directory).map_err(|error| cannot_write("manual pages to", directory, &error))?;
    let mut written = Vec::new();
    write_all(&command, directory, &mut written)?;
    match format {
        Format::Text => streams::out(format_args!("{} pages in {}\n", written.len(), directory.display()))?,
        Format::Json => streams::out(format_args!("{:#}\n", json!({ "hyoshi": head("man"), "pages": written })))?,
    }
    Ok(VerbOutcome::Success)
}

fn find<'a>(command: &'a Command, verb: &[String]) -> Result<&'a Command, CliError> {
    verb.iter().try_fold(command, |within, word| {
        within.find_subcommand(word).ok_or_else(|| {
            let names: Vec<_> = verbs(within).map(Command::get_name).collect();
            let failure = CliError::new(format_args!("`{}` has no verb `{}`", called(within), word.escape_debug()));
            match names.as_slice() {
                [] => failure.help(format_args!("it has none; `{} --help` lists its flags", called(within))),
                names => failure.help(format_args!("it has {}", names.join(", "))),
            }
        })
    })
}

/// The command as typed: `hyoshi broker set`.
fn called(command: &Command) -> &str {
    command.get_bin_name().unwrap_or(command.get_name())
}

/// All except hidden ones.
fn verbs(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}

fn page(command: &Command) -> Result<String, CliError> {
    let mut page = Vec::new();
    let title = called(command).replace(' ', "-");
    let source = concat!("hyoshi ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone().display_name(title.clone())).title(title.to_uppercase()).source(source);
    man.manual("Hyoshi").render(&mut page).map_err(CliError::new)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// A file for each: `hyoshi.1`, `hyoshi-broker.1`, `hyoshi-broker-set.1`.
fn write_all(command: &Command, directory: &Path, written: &mut Vec<String>) -> Result<(), CliError> {
    let name = format!("{}.1", called(command).replace(' ', "-"));
    let path = directory.join(&name);
    fs::write(&path, page(command)?).map_err(|error| cannot_write("the manual page", &path, &error))?;
    written.push(name);
    verbs(command).try_for_each(|verb| write_all(verb, directory, written))
}
