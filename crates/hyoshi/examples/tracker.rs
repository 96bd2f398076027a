//! Real work on real threads: a (synthetic) camera, edge detection, a tracking filter, steering,
//! and a map that is drawn with whatever time is left.
//!
//!     cargo run --release --example tracker -- run examples/tracker.toml
//!
//! Shown here: payloads that travel with the event (`emit`, `payload`), a latest value that is
//! read without being triggered by it (`latest`), a declared shared resource (`SharedValue`), and a
//! body that does less when its deadline is near (`time_left`).

use std::error::Error;
use std::process::ExitCode;

use hyoshi::{Bodies, SharedValue, Span, Strategies, System};

const WIDTH: usize = 160;
const HEIGHT: usize = 120;

/// What the filter knows of the spot, in pixels and pixels a frame.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    position: [f64; 2],
    velocity: [f64; 2],
}

fn main() -> ExitCode {
    hyoshi::cli(Bodies::for_system(bodies), Strategies::built_in())
}

fn bodies(system: &System) -> Result<Bodies, Box<dyn Error>> {
    let estimate = SharedValue::new(system, "estimate", Estimate::default())?;
    let (tracked, steered) = (estimate.clone(), estimate);

    // Everything that a body needs is allocated before the run.
    let mut frame = vec![0u8; WIDTH * HEIGHT];
    let mut map = vec![0u32; WIDTH * HEIGHT];
    let mut heading = [WIDTH as f64 / 2.0, HEIGHT as f64 / 2.0];

    Ok(Bodies::new()
        .body("camera", move |job| {
            picture(job.job().number, &mut frame);
            job.emit(&frame).expect("system.toml gives camera the payload of a frame");
        })
        .body("detect", move |job| {
            let Some(spot) = job.payload().and_then(brightest_edge) else { return };
            job.emit_value(&spot).expect("system.toml gives detect the payload of a position");
        })
        .body("track", move |job| {
            let Some(seen) = job.read::<[f64; 2]>() else { return };
            let follow = |estimate: &mut Estimate| {
                // An alpha-beta filter: predict, then correct by a share of the error.
                for ((position, velocity), seen) in estimate.position.iter_mut().zip(&mut estimate.velocity).zip(seen) {
                    let predicted = *position + *velocity;
                    let error = seen - predicted;
                    *position = predicted + 0.5 * error;
                    *velocity += 0.1 * error;
                }
            };
            tracked.lock(job, follow).expect("system.toml declares that track uses estimate");
        })
        .body("steer", move |job| {
            let aim =
                steered.lock(job, |estimate| estimate.position).expect("system.toml declares that steer uses estimate");
            for (heading, aim) in heading.iter_mut().zip(aim) {
                *heading += (aim - *heading) * 0.2;
            }
        })
        .body("map", move |job| {
            // Smooth again and again while there is time: a rough map in time beats a fine one late.
            while job.time_left() > Span::from_millis(60) && !job.stop_asked() {
                let Some(frame) = job.latest("camera") else { return };
                smooth(frame, &mut map);
            }
        }))
}

/// A bright disc that wanders in noise.
fn picture(number: u64, frame: &mut [u8]) {
    let time = number as f64 / 30.0;
    let centre = [80.0 + 50.0 * time.cos(), 60.0 + 35.0 * (1.3 * time).sin()];
    let mut noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (index, pixel) in frame.iter_mut().enumerate() {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        let (x, y) = ((index % WIDTH) as f64, (index / WIDTH) as f64);
        let inside = (x - centre[0]).powi(2) + (y - centre[1]).powi(2) < 64.0;
        *pixel = (noise & 31) as u8 + if inside { 200 } else { 0 };
    }
}

/// The centre of all strong edges (Sobel's operator), weighted by their strength.
fn brightest_edge(frame: &[u8]) -> Option<[f64; 2]> {
    let at = |x: usize, y: usize| i32::from(frame[y * WIDTH + x]);
    let (mut sum, mut weight) = ([0.0, 0.0], 0.0);
    for y in 1..HEIGHT - 1 {
        for x in 1..WIDTH - 1 {
            let right = at(x + 1, y - 1) + 2 * at(x + 1, y) + at(x + 1, y + 1);
            let left = at(x - 1, y - 1) + 2 * at(x - 1, y) + at(x - 1, y + 1);
            let below = at(x - 1, y + 1) + 2 * at(x, y + 1) + at(x + 1, y + 1);
            let above = at(x - 1, y - 1) + 2 * at(x, y - 1) + at(x + 1, y - 1);
            let strength = f64::from((right - left).abs() + (below - above).abs());
            if strength > 300.0 {
                sum = [sum[0] + strength * x as f64, sum[1] + strength * y as f64];
                weight += strength;
            }
        }
    }
    (weight > 0.0).then(|| [sum[0] / weight, sum[1] / weight])
}

/// One pass of a box filter of the frame into the map.
fn smooth(frame: &[u8], map: &mut [u32]) {
    for y in 1..HEIGHT - 1 {
        for x in 1..WIDTH - 1 {
            let near = [(y - 1) * WIDTH + x, (y + 1) * WIDTH + x, y * WIDTH + x - 1, y * WIDTH + x + 1];
            let sum: u32 = near.iter().map(|index| u32::from(frame[*index])).sum();
            let place = &mut map[y * WIDTH + x];
            *place = (*place * 3 + sum * 64) / 4;
        }
    }
}
