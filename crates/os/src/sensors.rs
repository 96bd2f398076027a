//! Temperature and battery of the machine (sysfs(5)).

use std::fs;
use std::path::{Path, PathBuf};

/// Measures the machine. Readings may block for some milliseconds.
pub trait MachineSensors: Send {
    /// The temperature of the hottest zone, in degrees Celsius; `None` if the kernel reports none.
    fn temperature(&mut self) -> Option<f64>;

    /// The charge of the machine's batteries, in percent: the mean of several; `None` without a battery.
    fn battery(&mut self) -> Option<f64>;
}

/// The most entries of a class that are read.
const ENTRIES: usize = 256;

/// The longest file that is read, in bytes.
const BYTES: u64 = 64;

/// The sensors in `/sys/class`.
#[derive(Debug)]
pub struct SysSensors {
    classes: PathBuf,
}

impl Default for SysSensors {
    fn default() -> Self {
        SysSensors::below(Path::new("/sys/class"))
    }
}

impl SysSensors {
    /// The sensors in another directory with the same files.
    pub fn below(classes: &Path) -> Self {
        SysSensors { classes: classes.to_owned() }
    }

    /// The directories of a class with this begin of their names.
    fn entries(&self, class: &str, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.classes.join(class)).into_iter().flatten().flatten();
        let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        named.take(ENTRIES).map(|entry| entry.path()).collect()
    }
}

fn text(path: PathBuf) -> Option<String> {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(fs::File::open(path).ok()?, BYTES), &mut text).ok()?;
    Some(text.trim().to_owned())
}

fn number(path: PathBuf) -> Option<f64> {
    text(path)?.parse::<i64>().ok().map(|number| number as f64)
}

impl MachineSensors for SysSensors {
    fn temperature(&mut self) -> Option<f64> {
        let zones = self.entries("thermal", "thermal_zone");
        // A zone that is off has no temperature.
        zones.into_iter().filter_map(|zone| Some(number(zone.join("temp"))? / 1e3)).max_by(f64::total_cmp)
    }

    fn battery(&mut self) -> Option<f64> {
        let supplies = self.entries("power_supply", "").into_iter();
        // Those of mice and keyboards have the scope `Device`.
        let of_machine = |supply: &PathBuf| {
            text(supply.join("type")).as_deref() == Some("Battery")
                && text(supply.join("scope")).as_deref() != Some("Device")
        };
        let charges = supplies.filter(of_machine).filter_map(|supply| number(supply.join("capacity")));
        let (sum, count) = charges.fold((0.0, 0), |(sum, count), charge| (sum + charge.clamp(0.0, 100.0), count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_zone_and_the_batteries_of_the_machine_count() {
        let root = std::env::temp_dir().join(format!("hyoshi-sensors-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let mut sensors = SysSensors::below(&root);
        assert_eq!((sensors.temperature(), sensors.battery()), (None, None));
        write("thermal/thermal_zone0/temp", "45500\n");
        write("thermal/thermal_zone1/temp", "-3000\n");
        write("thermal/thermal_zone2/temp", "no number");
        write("thermal/cooling_device0/temp", "99000\n");
        write("power_supply/AC/type", "Mains\n");
        write("power_supply/mouse/type", "Battery\n");
        write("power_supply/mouse/scope", "Device\n");
        write("power_supply/mouse/capacity", "5\n");
        assert_eq!((sensors.temperature(), sensors.battery()), (Some(45.5), None));
        for (battery, charge) in [("BAT0", "80\n"), ("BAT1", "41\n")] {
            write(&format!("power_supply/{battery}/type"), "Battery\n");
            write(&format!("power_supply/{battery}/capacity"), charge);
        }
        assert_eq!(sensors.battery(), Some(60.5));
        fs::remove_dir_all(root).unwrap();
    }
}
