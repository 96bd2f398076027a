//! Libraries in C and in Rust, built and loaded as the broker loads them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hyoshi_os::plugin::abi::{PluginReservation, PluginStatus};
use hyoshi_os::plugin::{AdvocatePlugin, LoadError, NamedAsk, PolicyPlugin};

/// A separate directory, where libraries are built.
struct Bench(PathBuf);

impl Bench {
    /// None, with a message, if there is no C compiler.
    fn new(name: &str) -> Option<Bench> {
        if Command::new("cc").arg("--version").output().is_err() {
            eprintln!("skipped, for there is no C compiler `cc`");
            return None;
        }
        let path = std::env::temp_dir().join(format!("hyoshi-plugin-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Some(Bench(path))
    }

    /// Builds a library of this source.
    fn cc(&self, source: &Path) -> PathBuf {
        let library = self.0.join(source.with_extension("so").file_name().unwrap());
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-shared", "-fPIC", "-I"]);
        cc.arg(broker("include")).arg(source).arg("-o").arg(&library);
        assert!(cc.status().unwrap().success(), "{cc:?}");
        library
    }

    fn cc_text(&self, name: &str, text: &str) -> PathBuf {
        let source = self.0.join(name);
        fs::write(&source, format!("#include \"hyoshi-plugin.h\"\n{text}")).unwrap();
        self.cc(&source)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn broker(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker").join(name)
}

/// An example's library. `cargo test` builds it only if no single target is selected; if it is missing or older than
/// its sources, it is built.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.ancestors().nth(2).unwrap();
    let library = built.join(format!("examples/lib{name}.so"));
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let sources = [format!("examples/{name}.rs"), "src/plugin/abi.rs".to_owned()];
    let sources = sources.map(|source| changed(&Path::new(env!("CARGO_MANIFEST_DIR")).join(source)));
    if sources.iter().all(|source| source.is_some() && *source < changed(&library)) {
        return library;
    }
    let profile = match built.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--offline", "--package", "hyoshi-os", "--example", name, "--profile", profile]);
    cargo.arg("--target-dir").arg(built.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    match cargo.status() {
        Ok(status) => assert!(status.success(), "{cargo:?}: {status}"),
        // On a machine that only runs binaries built elsewhere.
        Err(error) => eprintln!("{name} is as it was built before: no cargo, {error}"),
    }
    library
}

const MS: u64 = 1_000_000;

fn millis(budget: u64, period: u64) -> PluginReservation {
    PluginReservation { budget: budget * MS, period: period * MS, deadline: period * MS }
}

fn cycle(consumed: u64) -> PluginStatus {
    PluginStatus { consumed: consumed * MS, cycles: 1, mode: -1, ..PluginStatus::default() }
}

fn given(parameters: &[(&str, &str)]) -> Vec<(String, String)> {
    parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn an_advocate_in_c_is_loaded_asked_and_gone() {
    let Some(bench) = Bench::new("advocate") else { return };
    let path = bench.cc(&broker("examples/high-water.c"));
    let mut first = AdvocatePlugin::load(&path, "a", &given(&[("margin", "50")])).unwrap();
    let mut second = AdvocatePlugin::load(&path, "b", &[]).unwrap();
    assert_eq!(first.advise(&cycle(4), &millis(1, 40)), Ok(millis(6, 40)));
    assert_eq!(first.advise(&cycle(2), &millis(1, 40)), Ok(millis(6, 40)));
    assert_eq!(first.advise(&cycle(39), &millis(1, 40)), Ok(millis(40, 40)), "no more than there is");
    assert_eq!(first.words().unwrap(), "50 % above the most so far, 39.000 ms");
    assert_eq!(second.advise(&cycle(10), &millis(1, 40)), Ok(millis(11, 40)), "each has a state of its own");
    first.granted(&millis(1, 40), &millis(1, 40));
    drop(first);
    assert_eq!(second.advise(&cycle(20), &millis(1, 40)), Ok(millis(22, 40)));
    let refused = AdvocatePlugin::load(&path, "a", &given(&[("margin", "much")])).unwrap_err();
    assert!(
        refused.to_string().ends_with("refuses: its one parameter is margin, in percent, from 0 to 100"),
        "{refused}"
    );
    assert!(matches!(AdvocatePlugin::load(&path, "a\0", &[]), Err(LoadError::Nul)));
    assert!(matches!(PolicyPlugin::load(&path, &[]), Err(LoadError::NoFunction { .. })));
}

#[test]
fn a_policy_in_c_is_given_names_and_divides() {
    let Some(bench) = Bench::new("policy") else { return };
    let mut policy = PolicyPlugin::load(&bench.cc(&broker("examples/equal-parts.c")), &[]).unwrap();
    let ask = |name, asked| NamedAsk { name, asked, least: 0, task: 1, importance: 1, weight: 1 };
    let asks = [ask(c"a", millis(30, 40)), ask(c"b", millis(1, 50))];
    assert_eq!(policy.arbitrate(500_000, &asks), Ok(vec![10 * MS, MS]));
    assert_eq!(policy.arbitrate(500_000, &[]), Ok(vec![]));
    assert_eq!(policy.words().unwrap(), "the same part for everybody");
    let by_name = bench.cc_text(
        "by-name.c",
        "static void *create(const struct hyoshi_parameter *p, size_t n, char *w, size_t r) {\n\
         (void)p, (void)n, (void)w, (void)r; return \"\"; }\n\
         static int arbitrate(void *self, uint64_t cap, const struct hyoshi_ask *asks, size_t count, uint64_t *budgets) {\n\
         (void)self, (void)cap; for (size_t i = 0; i < count; i++) budgets[i] = asks[i].name[0]; return count > 1; }\n\
         const struct hyoshi_policy *hyoshi_policy_plugin(void) { static const struct hyoshi_policy table = {\n\
         .version = HYOSHI_PLUGIN_VERSION, .size = sizeof table, .create = (void *(*)(const struct hyoshi_parameter *, size_t,\n\
         char *, size_t))create, .arbitrate = arbitrate}; return &table; }\n",
    );
    let mut policy = PolicyPlugin::load(&by_name, &[]).unwrap();
    assert_eq!(policy.arbitrate(1, &asks[1..]), Ok(vec![u64::from(b'b')]));
    assert_eq!((policy.arbitrate(1, &asks), policy.words()), (Err(1), None));
}

#[test]
fn an_advocate_in_rust_is_loaded_as_one_in_c() {
    let path = example("steps");
    let mut steps =
        AdvocatePlugin::load(&path, "a", &given(&[("step", "5")])).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(steps.advise(&cycle(1), &millis(11, 40)), Ok(millis(15, 40)));
    assert_eq!(steps.words(), None);
    let refused = AdvocatePlugin::load(&path, "a", &given(&[("", "5")])).unwrap_err();
    assert!(refused.to_string().ends_with("its one parameter is step, in ms, from 1 to 1000"), "{refused}");
}

#[test]
fn what_is_no_plug_in_of_this_version_is_refused_before_it_is_asked_anything() {
    let Some(bench) = Bench::new("refused") else { return };
    let table = |head: &str| {
        format!(
            "static void *create(const char *t, const struct hyoshi_parameter *p, size_t n, char *w, size_t r) {{\n\
             (void)t, (void)p, (void)n, (void)w, (void)r; *(volatile int *)0 = 0; return 0; }}\n\
             const struct hyoshi_advocate *hyoshi_advocate_plugin(void) {{\n\
             static const struct hyoshi_advocate table = {{{head} .create = create}}; return &table; }}\n"
        )
    };
    let load = |path: &Path| AdvocatePlugin::load(path, "a", &[]).unwrap_err();
    let newer = bench.cc_text("newer.c", &table(".version = 2, .size = sizeof table,"));
    assert!(matches!(load(&newer), LoadError::Version { version: 2, .. }));
    let short = bench.cc_text("short.c", &table(".version = 1, .size = 16,"));
    assert!(matches!(load(&short), LoadError::NoTable { .. }));
    let lacking = bench.cc_text("lacking.c", &table(".version = 1, .size = sizeof table,"));
    assert!(matches!(load(&lacking), LoadError::NoTable { .. }), "it cannot advise");
    let none = bench.cc_text("none.c", "const struct hyoshi_advocate *hyoshi_advocate_plugin(void) { return 0; }\n");
    assert!(matches!(load(&none), LoadError::NoTable { .. }));
    let unresolved =
        "int missing(void);\nconst struct hyoshi_advocate *hyoshi_advocate_plugin(void) { missing(); return 0; }\n";
    let refused = load(&bench.cc_text("unresolved.c", unresolved));
    assert!(refused.to_string().contains("undefined symbol: missing"), "{refused}");
    let text = bench.0.join("text.so");
    fs::write(&text, "no library").unwrap();
    let refused = load(&text);
    assert!(matches!(refused, LoadError::Loader { .. }) && !refused.remedy().is_empty(), "{refused}");
}
