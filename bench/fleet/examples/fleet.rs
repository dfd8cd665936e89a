//! Writes the documents of a synthetic fleet, for timing what reads them.
//!
//! `cargo run --release -p fleet --features testing --example fleet -- --hosts 1000 --days 30 --rounds 10 -o DIR`

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use fleet::synthetic::{Change, Fleet, size_of, write};

const USAGE: &str = "options: -o DIR, --hosts N [1000], --days N [30], --rounds N [240], --slow-share SHARE [0.01], --slow-by SHARE [0.05], \
    --change-day N [17; 0: none], --change-by SHARE [0.03], --roll-out DAYS [1], --missing SHARE [0.05], --seed N [1]";
/// Rounds of a default run of nmi-latency.
const ROUNDS: u64 = 240;

struct Wanted {
    fleet: Fleet,
    rounds: u64,
    folder: PathBuf,
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} {text} is no number; {USAGE}"))
}

fn wanted(arguments: &[String]) -> Result<Wanted, String> {
    let mut fleet = Fleet::default();
    let mut change = Change { day: 17, by: 0.03, roll_out: 1, kernel: true };
    let (mut rounds, mut folder) = (ROUNDS, None);
    for pair in arguments.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} has no value; {USAGE}", pair.concat())) };
        match option.as_str() {
            "-o" => folder = Some(PathBuf::from(value)),
            "--hosts" => fleet.hosts = number(option, value)?,
            "--days" => fleet.days = number(option, value)?,
            "--rounds" => rounds = number(option, value)?,
            "--slow-share" => fleet.slow_share = number(option, value)?,
            "--slow-by" => fleet.slow_by = number(option, value)?,
            "--change-day" => change.day = number(option, value)?,
            "--change-by" => change.by = number(option, value)?,
            "--roll-out" => change.roll_out = number(option, value)?,
            "--missing" => fleet.missing = number(option, value)?,
            "--seed" => fleet.seed = number(option, value)?,
            _ => return Err(format!("no option {option}; {USAGE}")),
        }
    }
    fleet.change = (change.day > 0).then_some(change);
    let folder = folder.ok_or_else(|| format!("-o is missing; {USAGE}"))?;
    Ok(Wanted { fleet, rounds, folder })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Wanted { fleet, rounds, folder } = match wanted(&arguments) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let size = size_of(&fleet, rounds);
    let all = size * fleet.hosts as u64 * fleet.days;
    println!("{size} bytes a document, {:.1} GB in all", all as f64 / 1e9);
    let begun = Instant::now();
    match write(&fleet, rounds, &folder) {
        Ok(count) => {
            println!("{count} documents in {} after {:.0} s", folder.display(), begun.elapsed().as_secs_f64());
            let slow: Vec<String> = fleet.slow().into_iter().map(fleet::synthetic::name).collect();
            println!("slow: {}", slow.join(" "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cannot write to {}: {error}", folder.display());
            ExitCode::from(2)
        }
    }
}
