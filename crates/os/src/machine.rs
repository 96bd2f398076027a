//! A description of the machine, as the origin of figures.

use std::fs::File;
use std::io::Read;

/// The kernel: `Linux 6.18.5`.
pub fn kernel() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy())
}

/// The model of the first CPU as in proc_cpuinfo(5), else the architecture.
pub fn cpu_model() -> String {
    let mut text = Vec::new();
    // Some kilobytes for each CPU; the first is enough.
    let read = File::open("/proc/cpuinfo").and_then(|file| file.take(16 << 10).read_to_end(&mut text));
    let text = read.map_or_else(|_| "".into(), |_| String::from_utf8_lossy(&text));
    model(&text).unwrap_or_else(|| rustix::system::uname().machine().to_string_lossy().into_owned())
}

fn model(cpuinfo: &str) -> Option<String> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut models = lines.filter(|(key, _)| matches!(key.trim(), "model name" | "Model" | "cpu model" | "uarch"));
    models.next().map(|(_, model)| model.trim().to_owned()).filter(|model| !model.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_read_from_the_kernels_file() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n").as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(model("processor\t: 0\nBogoMIPS\t: 50\n"), None);
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(kernel().starts_with("Linux "), "{}", kernel());
        assert!(!cpu_model().is_empty());
    }
}
