//! A backup that takes over when its primary is lost, from the state that the primary has flushed to a replica.
//!
//!     cargo run --release --example takeover -- run examples/takeover.toml --host primary
//!     cargo run --release --example takeover -- run examples/takeover.toml --host backup
//!
//! It shows `replicate` in the file, the age of a replica (`age`), and a limit that `hyoshi check` proves: while the
//! primary is alive, the replica is never older than the `max_age` of the chain.

use std::error::Error;
use std::process::ExitCode;

use hyoshi::{Bodies, Span, Strategies, System};

/// The number of a step, and the sum of all numbers up to it: a state that depends on all earlier steps.
type State = [u64; 2];

/// The output of the backup: its state, the step at which it took over, and the age of the replica then, in ns.
type StandIn = [u64; 4];

fn main() -> ExitCode {
    hyoshi::cli(Bodies::for_system(bodies), Strategies::built_in())
}

fn step([number, sum]: State) -> State {
    [number + 1, sum + number + 1]
}

fn bodies(system: &System) -> Result<Bodies, Box<dyn Error>> {
    let chain = system.chains.iter().find(|chain| chain.name == "state");
    let oldest = chain.and_then(|chain| chain.max_age).ok_or("the file needs [chain.state] with max_age")?;
    let mut primary: State = [0, 0];
    let mut backup: Option<StandIn> = None;
    let mut printed = 0;

    Ok(Bodies::new()
        .body("control", move |job| {
            primary = step(primary);
            job.emit_value(&primary).expect("takeover.toml gives control the payload of a state");
        })
        .body("stand-in", move |job| {
            let own = match backup {
                Some([number, sum, at, age]) if job.job().number.is_multiple_of(5) => {
                    let [number, sum] = step([number, sum]);
                    [number, sum, at, age]
                }
                Some(_) => return,
                None => {
                    // Before the first flush the primary has not started.
                    let (Some(age), Some(state)) = (job.age("control"), job.read_latest::<State>("control")) else {
                        return;
                    };
                    if age <= oldest {
                        return;
                    }
                    [state[0], state[1], state[0], age.as_nanos()]
                }
            };
            backup = Some(own);
            job.emit_value(&own).expect("takeover.toml gives stand-in the payload of its output");
        })
        .body("log", move |job| {
            // Not critical: it may wait for a terminal.
            let Some([number, sum, at, age]) = job.read_latest::<StandIn>("stand-in") else { return };
            if printed == 0 {
                let age = Span::from_nanos(age);
                println!("the backup takes over at step {at}: the replica is {age:.3} old");
            }
            if number > printed {
                println!("step {number}, sum {sum}");
                printed = number;
            }
        }))
}
