//! Advocates, policies and schedulers that are not the broker's: of omniORB, of another process's ORB, of libraries.

use hyoshi_broker::idl::cpu_broker::{Policy, TaskRequest};
use hyoshi_orb::SystemKind;

use super::*;

/// The example for omniORB; none, with a word about it, where that is not installed.
fn elsewhere() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("peers/broker");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/others/build");
        let output = Command::new(script).arg("broker").arg(&directory).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => Some(directory.join("elsewhere")),
            Some(3) if std::env::var_os("HYOSHI_PEERS").is_none_or(|value| value != "required") => {
                eprintln!("skipped: {} (.ci/peers installs it)", said.trim());
                None
            }
            code => panic!("it is not built, {code:?}: {said}"),
        }
    };
    BUILT.get_or_init(build).clone()
}

/// It runs, and what it prints is in `printed` of the place.
struct Elsewhere(Program);

impl Elsewhere {
    fn start(place: &Place) -> Option<Elsewhere> {
        let mut command = Command::new(elsewhere()?);
        command.args(["-ORBendPoint", "giop:tcp:127.0.0.1:0"]).stdin(Stdio::null());
        command.stdout(fs::File::create(place.path().join("printed")).unwrap());
        let started = Elsewhere(Program::start(&mut command));
        wait_for(|| printed(place).contains("ready\n")).expect("it serves");
        for what in ["advocate", "policy", "scheduler"] {
            let reference = printed(place).lines().find_map(|line| line.strip_prefix(what)).unwrap().trim().to_owned();
            place.write(&format!("{what}.ior"), reference);
        }
        Some(started)
    }

    fn signal(&self, signal: &str) {
        kill(self.0.0.id(), signal);
    }
}

fn printed(place: &Place) -> String {
    place.read("printed")
}

fn file(place: &Place, name: &str) -> String {
    format!("file:{}", place.path().join(name).display())
}

/// Does almost nothing under the broker, and asks for what its advocate says.
fn sleeper(place: &Place, name: &str, advocate: &str) -> Program {
    let mut command = place.command(&format!("exec --name {name} --period 20ms --socket"));
    command.arg(place.path().join("run/broker.sock")).args(["--advocate", advocate, "--"]);
    Program::start(command.args(["sh", "-c", "while sleep 0.1; do :; done"]))
}

fn held(task: &Value) -> u64 {
    task["reserved"]["budget_ns"].as_u64().unwrap_or(0)
}

const MS: u64 = 1_000_000;

#[test]
fn an_advocate_of_omniorb_is_asked_told_passed_over_and_taken_back_and_delays_nobody() {
    let place = Place::new();
    let Some(elsewhere) = Elsewhere::start(&place) else { return };
    let _broker = Broker::start(&place, "--scheduler simulated --audit audit.log");
    let (_a, _b) = (sleeper(&place, "a", "rate 10%"), sleeper(&place, "b", "rate 10%"));
    task(&place, "a", |task| held(task) == 2 * MS);
    task(&place, "b", |task| held(task) == 2 * MS);
    let object = file(&place, "advocate.ior");
    ask(&place, &format!("broker advocate add a external --object {object} --timeout 1s")).exits(0);
    let a = task(&place, "a", |task| held(task) == 3 * MS);
    assert_eq!(a["advocate_status"][1], "half as much again", "{a}");
    wait_for(|| printed(&place).contains("granted a 3000000\n")).expect("what was granted travels back");
    assert!(printed(&place).contains("asked a 2000000\n"));

    // Stopped, its answer is awaited for a second. Meanwhile b reports, is changed, and decided on.
    elsewhere.signal("-STOP");
    let before = reports(&task(&place, "b", |_| true));
    ask(&place, "broker advocate add b rate 20%").exits(0);
    task(&place, "b", |task| held(task) == 4 * MS);
    let a = task(&place, "a", |task| held(task) == 2 * MS);
    assert_eq!(a["advocate_status"][1], "bypassed: no answer within 1s");
    let between = reports(&task(&place, "b", |_| true)) - before;
    assert!(between >= 15, "{between} reports of b in more than a second, of which each should have 50");
    let shown = ask(&place, "broker show a").exits(0).out;
    assert!(shown.contains("bypassed: no answer within 1s"), "{shown}");
    assert!(ask(&place, "broker explain a").exits(0).out.contains("(bypassed: no answer within 1s)"));

    elsewhere.signal("-CONT");
    task(&place, "a", |task| held(task) == 3 * MS);
    // Of a task that begins, the reference is read from its file as well.
    let _c = sleeper(&place, "c", &format!("external --object {object}"));
    task(&place, "c", |task| task["advocate_status"][0] == "half as much again");
    elsewhere.signal("-KILL");
    let a = task(&place, "a", |task| held(task) == 2 * MS);
    assert!(a["advocate_status"][1].as_str().unwrap().starts_with("bypassed: "), "{a}");
    let seen = reports(&a);
    task(&place, "a", |task| reports(task) > seen + 2);
    let noted =
        |change: &str| place.read("audit.log").matches(&format!("\"change\":\"{change}\",\"task\":\"a\"")).count();
    wait_for(|| noted("advocate-bypassed") == 2).expect("the log tells");
    assert_eq!(noted("advocate-answers"), 1);
}

#[test]
fn a_policy_of_omniorb_divides_and_the_declared_one_does_when_it_stalls() {
    let place = Place::new();
    let Some(elsewhere) = Elsewhere::start(&place) else { return };
    let _broker = Broker::start(&place, "--scheduler simulated --cap 60% --audit audit.log");
    let _a = sleeper(&place, "a", "rate 20%");
    let _b = sleeper(&place, "b", "rate 70%");
    task(&place, "b", |task| !task.is_null());
    ask(&place, "broker set b importance 2").exits(0);
    task(&place, "b", |task| held(task) == 12 * MS);
    let object = file(&place, "policy.ior");
    let set = format!("broker policy set external --object {object} --timeout 500ms --fallback weighted");
    ask(&place, &set).exits(0);
    // 30 % for each at most.
    let b = task(&place, "b", |task| held(task) == 6 * MS);
    assert_eq!(
        (&b["reason"], held(&task(&place, "a", |task| held(task) == 4 * MS))),
        (&"the policy grants no more".into(), 4 * MS)
    );
    let explained = ask(&place, "broker explain b").exits(0).out;
    assert!(explained.contains("by external (the same part for everybody): the policy grants no more"), "{explained}");

    elsewhere.signal("-STOP");
    // What it said last counts until it is late; then weighted takes the same from both: 15 % of a CPU.
    ask(&place, "broker set a importance 3").exits(0);
    task(&place, "a", |task| held(task) == MS);
    task(&place, "b", |task| held(task) == 11 * MS);
    let shown = ask(&place, "broker show").exits(0).out;
    let wanted = "weighted, because the external policy is bypassed: no answer within 500ms, cap 60%";
    assert!(shown.contains(wanted), "{shown}");
    elsewhere.signal("-CONT");
    task(&place, "b", |task| held(task) == 6 * MS);
    wait_for(|| place.read("audit.log").contains("\"change\":\"policy-answers\"")).expect("the log tells");
    assert!(place.read("audit.log").contains("\"change\":\"policy-bypassed\",\"to\":\"no answer within 500ms\""));
}

#[test]
fn a_scheduler_of_omniorb_confirms_refuses_and_is_told_all_anew_after_a_stall() {
    let place = Place::new();
    let Some(elsewhere) = Elsewhere::start(&place) else { return };
    let at = place.path().join("run/broker.sock");
    let mut command = place.command("broker --scheduler");
    command.arg(format!("external --object {} --timeout 60ms", file(&place, "scheduler.ior"))).arg("--socket").arg(&at);
    let mut broker = Broker::of(&mut command);
    let _a = sleeper(&place, "a", "rate 30%");
    let _b = sleeper(&place, "b", "rate 60%");
    task(&place, "a", |task| held(task) == 6 * MS);
    let b = task(&place, "b", |task| held(task) == 8 * MS);
    assert!(b["reason"].as_str().unwrap().starts_with("the kernel accepts no more"), "{b}");
    wait_for(|| printed(&place).contains("reserved b 8000000\n")).expect("it gets less");
    wait_for(|| ask(&place, "broker explain a").exits(0).out.contains("of 20ms (30%) by external, "))
        .expect("it has confirmed");
    assert!(ask(&place, "broker show").exits(0).out.contains("external: keeps a ledger"));

    elsewhere.signal("-STOP");
    ask(&place, "broker advocate add a rate 20%").exits(0);
    let by_another = || !ask(&place, "broker explain a").exits(0).out.contains("by external");
    wait_for(by_another).expect("the machine reserves itself");
    let shown = ask(&place, "broker show").exits(0).out;
    assert!(shown.contains("bypassed: no answer within 60ms"), "{shown}");
    let before = printed(&place).len();
    elsewhere.signal("-CONT");
    let again = |what: &str| wait_for(|| printed(&place)[before..].contains(what)).expect("it gets all again");
    again("reserved a 4000000\n");
    again("reserved b ");
    assert_eq!(broker.ends("-TERM").code(), Some(0));
    assert!(printed(&place)[before..].contains("released task 1\n"), "{}", &printed(&place)[before..]);
}

/// Answers without sense, in the way that the test says.
struct Senseless(AtomicU32);

impl Policy for Senseless {
    fn arbitrate(&self, _: u64, requests: &[TaskRequest]) -> Result<Vec<u64>, SystemException> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(vec![u64::MAX; requests.len()]),
            1 => Ok(vec![1; requests.len() + 1]),
            _ => Err(SystemKind::NoResources.not_done(0)),
        }
    }

    fn describe(&self) -> Result<String, SystemException> {
        Ok("everything\u{7} for everybody".to_owned())
    }
}

#[test]
fn what_a_policy_gives_beyond_the_laws_is_cut_and_what_is_no_answer_is_passed_over() {
    let place = Place::new();
    let _broker = Broker::start(&place, "--scheduler simulated --cap 60%");
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let senseless = Arc::new(Senseless(AtomicU32::new(0)));
    let object = orb.adapter("policies").build().unwrap().activate::<dyn Policy>(senseless.clone()).unwrap();
    place.write("policy.ior", object.ior().to_string());
    let _a = sleeper(&place, "a", "rate 50%");
    let _b = sleeper(&place, "b", "rate 50%");
    task(&place, "a", |task| held(task) > 0);
    task(&place, "b", |task| !task.is_null());
    let set = format!("broker policy set external --object {} --timeout 1s", file(&place, "policy.ior"));
    ask(&place, &set).exits(0);
    let policy = || ask(&place, "broker policy --format json").exits(0).json()["broker"].clone();
    let says = |words: &str| {
        wait_for(|| policy()["policy"].as_str().unwrap().contains(words)).unwrap_or_else(|| panic!("{}", policy()))
    };
    says("external (everything for everybody); cut, because it granted");
    assert_eq!(policy()["reserved_millionths"], 600_000, "all that there is, and no more");
    senseless.0.store(1, Ordering::Relaxed);
    ask(&place, "broker set b importance 2").exits(0);
    says("fair, because the external policy is bypassed: it returned 3 budgets for 2 requests");
    task(&place, "b", |task| held(task) == 10 * MS);
    senseless.0.store(2, Ordering::Relaxed);
    says("bypassed: NO_RESOURCES");
    orb.shutdown();
}

#[test]
fn libraries_advise_and_divide_and_what_could_be_anybodys_is_refused() {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped, for there is no C compiler `cc`");
        return;
    }
    let place = Place::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker");
    let build = |source: &Path, to: &str| {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-I"]).arg(sources.join("include")).arg(source).arg("-o");
        assert!(cc.arg(place.path().join(to)).status().unwrap().success());
    };
    build(&sources.join("examples/high-water.c"), "high-water.so");
    build(&sources.join("examples/equal-parts.c"), "equal-parts.so");
    // Asks for more than there can be, then fails.
    place.write(
        "senseless.c",
        "#include <hyoshi-plugin.h>\nstatic int count;\nstatic void *create(const char *t, const struct hyoshi_parameter *p,\n\
         size_t n, char *w, size_t r) { return &count; }\nstatic int advise(void *s, const struct hyoshi_status *h, const struct\n\
         hyoshi_reservation *a, struct hyoshi_reservation *w) { w->budget = a->period + 1; return count++ > 3 ? 7 : 0; }\n\
         const struct hyoshi_advocate *hyoshi_advocate_plugin(void) { static const struct hyoshi_advocate t = {\n\
         .version = HYOSHI_PLUGIN_VERSION, .size = sizeof t, .create = create, .advise = advise}; return &t; }\n",
    );
    build(&place.path().join("senseless.c"), "senseless.so");
    let path = |name: &str| place.path().join(name).display().to_string();

    let _broker = Broker::start(&place, "--scheduler simulated --cap 60% --audit audit.log");
    let _a = sleeper(&place, "a", "rate 70%");
    let a = task(&place, "a", |task| held(task) == 12 * MS);
    let seen = reports(&a);
    task(&place, "a", |task| reports(task) > seen);
    ask(&place, &format!("broker advocate add a library --path {} --margin 20", path("high-water.so"))).exits(0);
    let high_water = |task: &Value| {
        let says = task["advocate_status"][1].as_str().unwrap_or_default();
        says.starts_with("20 % above the most so far, ") && !says.ends_with(" 0.000 ms")
    };
    task(&place, "a", |task| high_water(task) && (1..12 * MS).contains(&held(task)));
    ask(&place, "broker advocate remove a 1").exits(0);
    // Where a path has blanks, quotes hold it together.
    fs::copy(place.path().join("high-water.so"), place.path().join("high water.so")).unwrap();
    fs::copy(place.path().join("equal-parts.so"), place.path().join("equal parts.so")).unwrap();
    let quoted = format!("library --path '{}' --margin 20", path("high water.so"));
    let _quoted = sleeper(&place, "quoted", &quoted);
    task(&place, "quoted", |task| {
        task["advocate_status"][0].as_str().is_some_and(|says| says.starts_with("20 % above"))
    });
    let listed = ask(&place, "broker advocate list quoted").exits(0).out;
    assert_eq!(listed, format!("0  library --path \"{}\" --margin 20\n", path("high water.so")));
    ask(&place, "broker detach quoted").exits(0);

    ask(&place, &format!("broker advocate add a library --path {}", path("senseless.so"))).exits(0);
    task(&place, "a", |task| task["advocate_status"][1] == "bypassed: it returned error 7" && held(task) == 12 * MS);
    wait_for(|| place.read("audit.log").contains("it requested an invalid reservation")).expect("the log tells");

    let refused = |words: &str, what: &str| {
        let said = ask(&place, words).exits(1).err;
        assert!(said.contains(what), "{said}");
    };
    refused("broker advocate add a library --path high-water.so", "must begin with /");
    refused("broker advocate add a library", "missing `path` of `library`");
    refused(&format!("broker advocate add a library --path {} --margin", path("high-water.so")), "missing value");
    let more = format!("broker advocate add a library --path {} --more 1", path("high-water.so"));
    refused(&more, "refuses: its one parameter is margin, in percent, from 0 to 100");
    refused(
        &format!("broker advocate add a library --path {}", path("equal-parts.so")),
        "no function hyoshi_advocate_plugin",
    );
    fs::copy(place.path().join("high-water.so"), place.path().join("open.so")).unwrap();
    fs::set_permissions(place.path().join("open.so"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    refused(&format!("broker advocate add a library --path {}", path("open.so")), "has mode 666");

    let _b = sleeper(&place, "b", "rate 70%");
    task(&place, "b", |task| !task.is_null());
    ask(&place, "broker set a importance 5").exits(0);
    task(&place, "b", |task| held(task) == 0 && reports(task) > 0);
    let mut set = place.command("broker policy set library --fallback weighted --socket");
    set.arg(place.path().join("run/broker.sock")).arg("--path").arg(path("equal parts.so"));
    Ended::of("policy set", &set.output().unwrap()).exits(0);
    task(&place, "a", |task| held(task) == 6 * MS);
    task(&place, "b", |task| held(task) == 6 * MS);
    assert!(ask(&place, "broker show").exits(0).out.contains("library (the same part for everybody), cap 60%"));
    refused("broker policy set library --path /nowhere.so --fallback weighted", "/nowhere.so cannot be read");
    refused("broker policy set external --fallback weighted", "missing `object` of `external`");
    refused("broker policy set strict --object IOR:00", "expected the end instead of `--object`");
}

#[test]
fn only_those_who_may_change_all_tasks_have_the_broker_call_elsewhere() {
    let place = Place::new();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _broker = Broker::start(&place, "");
    let at = format!("--socket {}", place.path().join("run/broker.sock").display());
    let Some(mut run) = as_nobody(&place, &format!("exec {at} --name mine --period 50ms -- sleep 1000")) else {
        return;
    };
    let _mine = Program::start(&mut run);
    task(&place, "mine", |task| reports(task) > 0);
    for advocate in ["external --object corbaloc:iiop:127.0.0.1:1/x", "library --path /usr/lib/x.so"] {
        let words = format!("broker advocate add {at} mine {advocate}");
        let refused = Ended::of(&words, &as_nobody(&place, &words).unwrap().output().unwrap()).exits(1).err;
        assert!(refused.contains("only operators may use external components"), "{refused}");
    }
}
