//! `vpmu fleet`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use results::error::{Error, Exit};
use results::table::fold::Table;
use results::table::layout::{columns, dash, plural};

use super::app::{self, Command, Parsed};
use super::nmi_latency;
use crate::console::{complain, internal, print, print_json};
use crate::fleet::element::{Element, elements};
use crate::fleet::folder::{Campaign, Folder};
use crate::fleet::plan::{Plan, PlannedVariant, refused};
use crate::fleet::standing::{Line, Standing, State};
use crate::fleet::{attempt, local, merge, on_slurm};
use crate::{process, progress, sys};
use slurm::command::Slurm;
use slurm::script::COPIES;

pub(super) const EXAMPLES: &str = "\
Examples:
  # what would run, and how long
  vpmu fleet plan nightly.toml
  # here, one element after the other; the report at the end
  vpmu fleet nightly.toml
  # on the nodes of a cluster
  vpmu fleet submit nightly.toml --on slurm -o /shared/nightly
  vpmu fleet status /shared/nightly
  vpmu fleet report /shared/nightly

A plan (docs/fleet.md has all keys):
  name = 'nightly'
  hosts = [{ names = 'clx[001-004]' }, { constraint = 'icx' }]
  repeat = { times = 3, every = '6h' }
  [[experiment]]
  run = 'nmi-latency'
  options = { workload = 'sampling4', rounds = 160 }
  [[variant]]
  name = 'before'
  binary = 'vpmu-1.0'
  [[variant]]
  name = 'after'

Exit codes: 0 done, 1 an element failed or a figure is slower,
2 bad usage or plan, 3 elements without an outcome or an
inconclusive one, 4 Slurm is not there or does not answer,
70 a bug of vpmu.";

/// Options of `vpmu fleet`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct FleetArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<FleetCommand>,
    /// The plan.
    #[command(flatten)]
    pub submit: Option<SubmitArgs>,
}

/// What to do with a campaign.
#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// List a plan's elements and how long they take; run nothing
    Plan(PlanArgs),
    /// Run the elements of a plan that have no outcome
    Submit(SubmitArgs),
    /// Show how far a campaign is
    Status(StatusArgs),
    /// Check results, put parts of sweeps together, bring the index up to date
    Collect(DirArgs),
    /// Cancel a campaign's jobs
    Cancel(DirArgs),
    /// Collect, then judge: failed elements, odd hosts, variants; writes report.html, summary.md, junit.xml
    Report(ReportArgs),
    /// Run one element, as its job does
    #[command(hide = true)]
    Element(ElementArgs),
}

/// Options of `vpmu fleet plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArgs {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,
    /// Print the elements as JSON
    #[arg(long)]
    pub json: bool,
}

/// Where elements run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// On this machine, one after the other; the plan's hosts and times are names only.
    #[default]
    Local,
    /// As Slurm's array jobs.
    Slurm,
}

/// Options of `vpmu fleet submit`.
#[derive(Clone, Debug, Args)]
pub struct SubmitArgs {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,

    /// Where elements run: local, one after the other, or slurm
    #[arg(long, value_enum, default_value_t, value_name = "PLACE", hide_possible_values = true)]
    pub on: On,

    /// Folder of the campaign, on a file system that every node has [default: vpmu-campaigns/NAME]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Run failed elements again, too
    #[arg(long)]
    pub retry_failed: bool,

    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// A campaign's folder.
#[derive(Clone, Debug, Args)]
pub struct DirArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Options of `vpmu fleet status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// List every element
    #[arg(long)]
    pub all: bool,
    /// Print JSON in place of the table
    #[arg(long)]
    pub json: bool,
}

/// Options of `vpmu fleet report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON in place of the table
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print Markdown
    #[arg(long)]
    pub markdown: bool,
}

/// Options of `vpmu fleet element`.
#[derive(Clone, Debug, Args)]
pub struct ElementArgs {
    /// Folder of the campaign
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Number of the element
    #[arg(value_name = "NUMBER")]
    pub number: u64,
}

pub(super) fn run(args: &FleetArgs) -> Result<Exit, Error> {
    match (&args.command, &args.submit) {
        (None, None) => {
            Err(Error::usage("vpmu fleet needs a plan or a subcommand", "", "`vpmu fleet --help` lists them"))
        }
        (None, Some(submit_args)) => {
            let (dir, ended) = submit(submit_args)?;
            if submit_args.on == On::Slurm || !ended {
                return Ok(if ended { Exit::Done } else { Exit::Inconclusive });
            }
            report(&ReportArgs { dir, json: false, markdown: false })
        }
        (Some(FleetCommand::Submit(args)), _) => {
            let (dir, ended) = submit(args)?;
            if !ended {
                return Ok(Exit::Inconclusive);
            }
            Ok(if args.on == On::Slurm { Exit::Done } else { standing(&dir)?.2.exit() })
        }
        (Some(FleetCommand::Plan(args)), _) => plan(args),
        (Some(FleetCommand::Status(args)), _) => status(args),
        (Some(FleetCommand::Collect(args)), _) => collect(&args.dir).map(|(_, _, standing)| standing.exit()),
        (Some(FleetCommand::Cancel(args)), _) => cancel(&args.dir),
        (Some(FleetCommand::Report(args)), _) => report(args),
        (Some(FleetCommand::Element(args)), _) => element(args),
    }
}

/// The plan's elements, with their command lines checked where this binary runs them.
fn planned(path: &Path) -> Result<(Plan, Vec<Element>), Error> {
    let plan = Plan::from_file(path)?;
    let elements = elements(&plan, &estimate);
    let own: BTreeSet<&str> =
        plan.variants.iter().filter(|variant| is_own(variant)).map(|variant| variant.name.as_str()).collect();
    let mut checked = BTreeSet::new();
    for element in elements.iter().filter(|element| own.contains(element.variant.as_str())) {
        if checked.insert((&element.experiment, &element.variant)) {
            let line = std::iter::once("vpmu".to_owned()).chain(element.words.iter().cloned());
            if let Err(error) = app::parse(line) {
                let why = format!("experiment '{}', variant '{}': {error}", element.experiment, element.variant);
                return Err(refused(&path.display().to_string(), why));
            }
        }
    }
    Ok((plan, elements))
}

const fn is_own(variant: &PlannedVariant) -> bool {
    variant.binary.is_none()
}

/// How long a command line takes about, by the options' own plan.
fn estimate(words: &[String]) -> Option<Duration> {
    let line = std::iter::once("vpmu".to_owned()).chain(words.iter().cloned());
    match app::parse(line).ok()? {
        Parsed::Run(Command::NmiLatency(args)) => nmi_latency::estimate(&args),
        _ => None,
    }
}

fn plan(args: &PlanArgs) -> Result<Exit, Error> {
    let (plan, elements) = planned(&args.plan)?;
    if args.json {
        return print_json(&elements).map(|()| Exit::Done);
    }
    let mut table = Table::new(["experiment", "variant", "elements", "each takes", "limit", "together"]).keys(2);
    let mut rows: Vec<(&str, &str, Vec<&Element>)> = Vec::new();
    for element in &elements {
        let name = (element.experiment.as_str(), element.variant.as_str());
        match rows.iter_mut().find(|row| (row.0, row.1) == name) {
            Some(row) => row.2.push(element),
            None => rows.push((name.0, name.1, vec![element])),
        }
    }
    let mut unknown = false;
    for (experiment, variant, elements) in &rows {
        let each = elements[0].estimate_s;
        unknown |= each.is_none();
        let all = each.map(|each| each.saturating_mul(elements.len() as u64));
        table.add_row([
            (*experiment).to_owned(),
            (*variant).to_owned(),
            elements.len().to_string(),
            each.map_or_else(dash, seconds),
            seconds(elements[0].limit_s),
            all.map_or_else(dash, seconds),
        ]);
    }
    let mut text = table.text(columns()) + "\n";
    let targets: Vec<String> = plan.targets.iter().map(ToString::to_string).collect();
    let spread = seconds(plan.every.as_secs().saturating_mul(u64::from(plan.times.saturating_sub(1))));
    let _ = writeln!(
        text,
        "{}: {} on {} ({}), {} over {spread}",
        plan.name,
        plural(elements.len(), "element"),
        plural(plan.targets.len(), "host"),
        shortened(&targets),
        plural(plan.times as usize, "repetition"),
    );
    let known: u64 = elements.iter().filter_map(|element| element.estimate_s).sum();
    let least =
        if unknown { ", and what has no estimate (its limit is the experiment's `time`, or 30 min)" } else { "" };
    let _ = writeln!(text, "one after the other: about {}{least}", seconds(known));
    print(&text).map(|()| Exit::Done)
}

/// The first names of a list, and how many more.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    let first = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

fn seconds(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

/// Submits what is due. The campaign's folder, and false if it was interrupted.
fn submit(args: &SubmitArgs) -> Result<(PathBuf, bool), Error> {
    let (plan, elements) = planned(&args.plan)?;
    let dir = args.output.clone().unwrap_or_else(|| Path::new("vpmu-campaigns").join(&plan.name));
    // Whether Slurm is there is known before anything is written.
    let slurm = Slurm::default();
    if args.on == On::Slurm {
        slurm.config()?;
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (folder, campaign) = Folder::submit(&dir, &plan, elements, now)?;
    let _lock = lock(&folder, "submission")?;
    let states = on_slurm::states(&slurm, &folder)?;
    if let Some(why) = states.unanswered {
        let what = format!("cannot tell which elements of {} run", dir.display());
        return Err(Error::host(what, why, "submit again when Slurm's controller answers: nothing runs twice then"));
    }
    let mut standing = Standing::of(&folder, &campaign, &states.elements, None)?;
    if args.retry_failed {
        for done in
            standing.elements.iter().filter(|line| line.state == State::Failed).filter_map(|line| line.done.as_ref())
        {
            folder.forget(done)?;
        }
        standing = Standing::of(&folder, &campaign, &BTreeMap::new(), None)?;
    }
    let due: BTreeSet<u64> =
        standing.elements.iter().filter(|line| line.state.is_due()).map(|line| line.number).collect();
    complain(&format!(
        "{} of {} to run{}; folder {}",
        due.len(),
        plural(campaign.elements.len(), "element"),
        if due.is_empty() { ": the others have an outcome or a job" } else { "" },
        folder.path.display()
    ));
    if due.is_empty() {
        return Ok((dir, true));
    }
    match args.on {
        On::Local => {
            if campaign.elements.iter().any(|element| element.target != crate::fleet::plan::Target::Any) {
                complain("notice: --on local: every element runs on this host, whatever host the plan names");
            }
            sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
            let mut progress = progress::shown(!args.quiet);
            let ended = local::run(&folder, &campaign, &due, sys::interrupted(), progress.as_mut())?;
            if !ended {
                complain("warning: interrupted; run the same command again to go on");
            }
            Ok((dir, ended))
        }
        On::Slurm => {
            let due: Vec<&Element> = campaign.elements.iter().filter(|element| due.contains(&element.number)).collect();
            for job in on_slurm::submit(&slurm, &folder, &campaign, &due)? {
                print(&format!("job {}: {}\n", job.job, plural(job.elements.len(), "element")))?;
            }
            Ok((dir, true))
        }
    }
}

/// The lock that submissions and collectors of a campaign share.
fn lock(folder: &Folder, what: &str) -> Result<std::fs::File, Error> {
    let failed =
        |error: std::io::Error| Error::usage(format!("cannot lock {}", folder.path.display()), error.to_string(), "");
    let file = std::fs::File::open(&folder.path).map_err(failed)?;
    if !process::try_lock(&file).map_err(failed)? {
        return Err(Error::usage(
            format!("another {what} of {} is at work", folder.path.display()),
            "two at a time would do the same twice",
            "wait for it; outcomes are safe meanwhile",
        ));
    }
    Ok(file)
}

/// What is there, with Slurm's answer.
fn standing(dir: &Path) -> Result<(Folder, Campaign, Standing), Error> {
    let (folder, campaign) = Folder::open(dir)?;
    let states = on_slurm::states(&Slurm::default(), &folder)?;
    if let Some(why) = &states.unanswered {
        complain(&format!("warning: Slurm does not answer ({why}): elements without an outcome are shown as lost"));
    }
    let standing = Standing::of(&folder, &campaign, &states.elements, states.unanswered)?;
    Ok((folder, campaign, standing))
}

fn status(args: &StatusArgs) -> Result<Exit, Error> {
    let (_, _, standing) = standing(&args.dir)?;
    if args.json {
        print_json(&standing)?;
    } else {
        print(&shown(&standing, args.all))?;
    }
    Ok(standing.exit())
}

/// The counts, then the elements that need a look, or all.
fn shown(standing: &Standing, all: bool) -> String {
    let counts = State::ALL.into_iter().filter(|&state| standing.count(state) > 0);
    let counts: Vec<String> = counts.map(|state| format!("{} {}", standing.count(state), state.word())).collect();
    let total = plural(standing.elements.len(), "element");
    let mut text = format!("{}: {total}: {}\n", standing.campaign, counts.join(", "));
    let needs_a_look = |line: &&Line| all || !matches!(line.state, State::Ok | State::Pending | State::Waiting);
    let lines: Vec<&Line> = standing.elements.iter().filter(needs_a_look).collect();
    if lines.is_empty() {
        return text;
    }
    let mut table =
        Table::new(["element", "state", "host", "job", "exit", "attempts", "reason"]).left(1).left(2).left(3).left(6);
    for line in lines {
        let given = |text: &Option<String>| text.clone().unwrap_or_else(dash);
        table.add_row([
            line.name.clone(),
            line.state.word().to_owned(),
            given(&line.host),
            given(&line.job),
            line.exit.map_or_else(dash, |code| code.to_string()),
            line.attempts.to_string(),
            given(&line.reason),
        ]);
    }
    text += &table.text(columns());
    text + "\n"
}

/// Puts sweeps together and brings the index up to date.
fn collect(dir: &Path) -> Result<(Folder, Campaign, Standing), Error> {
    let (folder, campaign, standing) = standing(dir)?;
    let _lock = lock(&folder, "collector")?;
    for sweep in merge::sweeps(&folder, &campaign, &standing)? {
        match sweep.folder {
            Some(to) => {
                complain(&format!("sweep {}: {} in {}", sweep.name, plural(sweep.points, "point"), to.display()));
            }

            None => complain(&format!("sweep {}: {} still missing", sweep.name, plural(sweep.missing, "part"))),
        }
    }
    complain(shown(&standing, false).lines().next().unwrap_or_default());
    Ok((folder, campaign, standing))
}

fn cancel(dir: &Path) -> Result<Exit, Error> {
    let (folder, _) = Folder::open(dir)?;
    let jobs = on_slurm::submissions(&folder)?;
    if jobs.is_empty() {
        let why = "it was not submitted to Slurm";
        return Err(Error::usage(
            format!("nothing to cancel in {}", dir.display()),
            why,
            "interrupt a local run with Ctrl-C",
        ));
    }
    Slurm::default().cancel(&jobs)?;
    print(&format!("cancelled; `vpmu fleet status {}` shows what has an outcome\n", dir.display())).map(|()| Exit::Done)
}

fn report(args: &ReportArgs) -> Result<Exit, Error> {
    let (_, _, standing) = collect(&args.dir)?;
    if args.json {
        print_json(&standing)?;
    } else {
        print(&shown(&standing, false))?;
    }
    Ok(standing.exit())
}

fn element(args: &ElementArgs) -> Result<Exit, Error> {
    let (folder, campaign) = Folder::open(&args.dir)?;
    let element =
        usize::try_from(args.number).ok().and_then(|number| campaign.elements.get(number)).ok_or_else(|| {
            let count = plural(campaign.elements.len(), "element");
            Error::usage(format!("no element {}", args.number), format!("the campaign has {count}"), "")
        })?;
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGTERM", error))?;
    let copies = std::env::var_os(COPIES).map(PathBuf::from);
    let ended = attempt::run(&folder, &campaign, element, copies.as_deref(), sys::interrupted())?;
    match &ended {
        attempt::Ended::Done(done) => complain(&format!("{}: {}", element.name, done.how())),
        attempt::Ended::Stopped(why) => complain(&format!("{}: stopped: {why}", element.name)),
    }
    Ok(ended.exit())
}
