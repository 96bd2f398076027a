//! The time to read large files: `cargo bench -p hyoshi-model --bench reading`.
//!
//! The target is 10,000 operations in under a second.

use divan::Bencher;
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

/// As many operations, each in its own table: two of three are periodic, every third is triggered by the two before it.
/// A chain leads over it, and an epoch changes a tenth of the operations.
fn written_out(operations: usize) -> String {
    let mut text = String::from("name = \"large\"\n");
    for processor in 0..16 {
        text += &format!("[processor.p{processor}]\ncpu = {processor}\n");
    }
    for operation in 0..operations {
        let (one, other) = (operation.wrapping_sub(2), operation.wrapping_sub(1));
        let release = match operation % 3 {
            2 => format!("after = {{ all = [\"o{one}\", \"o{other}\"] }}"),
            _ => format!("every = \"{}ms\"", 10 + operation / 3 % 90),
        };
        text += &format!(
            "[operation.o{operation}]\non = \"p{}\"\n{release}\nwcet = \"3us\"\ntakes = {{ uniform = [\"1us\", \"3us\"] }}\ncritical = {}\n",
            operation % 16,
            operation % 5 == 0,
        );
        if operation % 3 == 2 {
            text += &format!("[chain.c{operation}]\npath = [\"o{other}\", \"o{operation}\"]\ndeadline = \"50ms\"\n");
        }
    }
    text += "[[epoch]]\nat = \"5s\"\n[epoch.set]\n";
    for operation in (0..operations).step_by(10) {
        text += &format!("\"operation.o{operation}.wcet\" = \"4us\"\n");
    }
    text
}

#[divan::bench(args = [100, 1_000, 10_000, 30_000], sample_count = 20)]
fn operations_written_out(bencher: Bencher<'_, '_>, operations: usize) {
    let text = written_out(operations);
    bencher.counter(ItemsCount::new(operations)).bench(|| hyoshi_model::read(&text, "large.toml", None).unwrap());
}

#[divan::bench(args = [10_000, 100_000], sample_count = 20)]
fn instances_of_a_template(bencher: Bencher<'_, '_>, operations: usize) {
    let text = format!(
        "name = \"large\"\n[operation.o]\nevery = \"1s\"\nwcet = \"1us\"\ncount = {operations}\nstagger = \"even\"\n"
    );
    bencher.counter(ItemsCount::new(operations)).bench(|| hyoshi_model::read(&text, "large.toml", None).unwrap());
}

#[divan::bench(sample_count = 20)]
fn a_file_in_which_every_name_is_wrong(bencher: Bencher<'_, '_>) {
    let text = written_out(10_000).replace("\"o", "\"x");
    bencher.bench(|| hyoshi_model::read(&text, "large.toml", None).unwrap_err());
}
