//! Lookup: from parsed events to perf_event_attr.

use std::path::Path;

use perf_event_open_sys::bindings::{
    PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr,
};

use super::ask::Encoding;
use super::names::{Code, number, symbol};
use super::parse::{Kind, MAX_EVENTS, Written, WrittenGroup};
use super::sysfs::{Pmu, Sysfs};
use super::{Class, Event, EventList, Group, Openable};

/// Creates an attribute with type, config and size only.
pub fn attr(code: Code) -> perf_event_attr {
    perf_event_attr {
        type_: code.kind,
        size: u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0),
        config: code.config,
        ..perf_event_attr::default()
    }
}

/// Looks a list up on this host. An unknown event stays in the list, with the reason.
pub fn resolve(written: &[WrittenGroup], sysfs: &mut Sysfs) -> EventList {
    let mut list = EventList::default();
    for group in written {
        let first = list.events.len();
        for event in &group.events {
            for event in expand(event, sysfs) {
                let found = look_up(&event, sysfs);
                let asked = if found.open.is_err() { ask(&event, sysfs) } else { Vec::new() };
                let asked: Vec<Event> = asked.iter().map(|event| look_up(event, sysfs)).collect();
                let room = MAX_EVENTS - list.events.len();
                list.events.extend(if asked.is_empty() { vec![found] } else { asked }.into_iter().take(room));
            }
        }
        let found = first..list.events.len();
        // Instances outside of braces are single events, not a group.
        let single = group.events.len() == 1;
        // Events on other CPUs than their leader's cannot follow it there; perf opens them without it, too.
        let joins = |&event: &usize| !single && list.events[event].cpus == list.events[first].cpus;
        let (members, alone): (Vec<_>, Vec<_>) = found.partition(joins);
        let odd = |&event: &usize| {
            format!("{}: on other CPUs than its group's leader, opened alone", list.events[event].name)
        };
        let notes: Vec<String> = alone.iter().filter(|_| !single).map(odd).collect();
        list.notes.extend(notes);
        let groups = std::iter::once(members).filter(|members| !members.is_empty());
        let groups = groups.chain(alone.into_iter().map(|event| vec![event]));
        list.groups.extend(groups.map(|members| Group { members, weak: group.weak }));
    }
    list.notes.extend(sysfs.perf.as_ref().and_then(|perf| perf.missing.clone()));
    list
}

/// Returns the event by each of its encodings that perf prints, in this parser's own terms; none if perf does not know it.
fn ask(event: &Written, sysfs: &mut Sysfs) -> Vec<Written> {
    let text = match &event.kind {
        Kind::Symbol(name) => name.as_str(),
        Kind::Pmu { .. } => &event.text[..=event.text.rfind('/').unwrap_or_default()],
        Kind::Tracepoint { .. } => return Vec::new(),
    };
    // perf would take a file of this name for a BPF program to load.
    let other = [".o", ".c", ".bpf"].iter().any(|end| text.ends_with(end));
    let Some(perf) = sysfs.perf.as_mut().filter(|_| !other) else { return Vec::new() };
    let encodings = perf.encodings(text);
    let by = |Encoding { kind, words }: Encoding| {
        let pmu = sysfs.of_type(kind).unwrap_or_else(|| format!("{kind}:{:#x}", words[0]));
        let words = WORDS.into_iter().zip(words).filter(|&(key, word)| word != 0 || key == "config");
        let mut terms: Vec<_> = words.map(|(key, word)| (key.to_owned(), Some(format!("{word:#x}")))).collect();
        if let Kind::Symbol(name) = &event.kind {
            terms.push(("name".to_owned(), Some(name.clone())));
        }
        let shown: Vec<String> =
            terms.iter().map(|(key, value)| format!("{key}={}", value.as_deref().unwrap_or_default())).collect();
        let letters = event.text[text.len()..].trim_start_matches(':');
        Written {
            text: format!("{pmu}/{}/{letters}", shown.join(",")),
            kind: Kind::Pmu { pmu, terms },
            ..event.clone()
        }
    };
    encodings.into_iter().map(by).collect()
}

/// Expands a PMU's name without its number to all instances, and a name that only sysfs knows to the PMUs that have it; other events
/// are returned as they are.
fn expand(event: &Written, sysfs: &mut Sysfs) -> Vec<Written> {
    let other = |text: String, kind: Kind| Written { text, kind, modifiers: event.modifiers };
    let found: Vec<Written> = match &event.kind {
        Kind::Pmu { pmu, terms } if symbol(pmu).is_none() && sysfs.pmu(pmu).is_err() => {
            let instance = |name: String| {
                other(event.text.replacen(pmu.as_str(), &name, 1), Kind::Pmu { pmu: name, terms: terms.clone() })
            };
            sysfs.instances(pmu).into_iter().map(instance).collect()
        }
        Kind::Symbol(name) if symbol(name).is_none() => {
            let of = |pmu| other(event.text.clone(), Kind::Pmu { pmu, terms: vec![(name.clone(), None)] });
            sysfs.with_event(name).into_iter().map(of).collect()
        }
        _ => Vec::new(),
    };
    if found.is_empty() { vec![event.clone()] } else { found }
}

fn look_up(event: &Written, sysfs: &mut Sysfs) -> Event {
    let mut found = Event {
        name: event.text.clone(),
        written: event.text.clone(),
        open: Err(String::new()),
        cpus: None,
        unit: String::new(),
    };
    let open = match &event.kind {
        Kind::Symbol(name) => symbol(name).map(|code| plain(code, &mut found)).ok_or_else(|| unknown(name)),
        Kind::Tracepoint { group, name } => sysfs.tracepoint(group, name).map(|id| Openable {
            attr: attr(Code { kind: PERF_TYPE_TRACEPOINT, config: id }),
            class: Class::Tracepoint,
        }),
        Kind::Pmu { pmu, terms } => match symbol(pmu) {
            Some(code) => with_terms(code, terms, &mut found),
            None => sysfs.pmu(pmu).and_then(|pmu| of_pmu(&pmu, terms, sysfs, &mut found)),
        },
    };
    found.open = open.map(|mut open| {
        event.modifiers.apply(&mut open.attr);
        open
    });
    found
}

/// Begin of the reason why an event of no known name cannot be opened.
pub const UNKNOWN: &str = "unknown event";

fn unknown(name: &str) -> String {
    let file = if Path::new(name).extension().is_some() { "; nor is there a file of that name" } else { "" };
    format!("{UNKNOWN} {name} (perf list shows the known ones{file})")
}

fn plain(code: Code, event: &mut Event) -> Openable {
    let mut attr = attr(code);
    let class = match code.kind {
        PERF_TYPE_SOFTWARE => Class::Software,
        PERF_TYPE_TRACEPOINT => Class::Tracepoint,
        PERF_TYPE_HARDWARE | PERF_TYPE_HW_CACHE | PERF_TYPE_RAW => Class::Hardware,
        _ => Class::OtherPmu,
    };
    // By default perf leaves guests out of events of the core PMU.
    attr.set_exclude_guest(u64::from(class == Class::Hardware));
    if code.kind == PERF_TYPE_SOFTWARE && code.config <= 1 {
        // Clocks count ns; perf prints ms.
        "msec".clone_into(&mut event.unit);
    }
    Openable { attr, class }
}

/// The config words of an attribute.
const WORDS: [&str; 4] = ["config", "config1", "config2", "config3"];

/// Sets what is a term of every event; false for other terms.
fn set_common(key: &str, value: Option<&str>, words: &mut [u64; 4], event: &mut Event) -> Result<bool, String> {
    let read = |value: Option<&str>| {
        let value = value.unwrap_or_default();
        number(value).ok_or_else(|| format!("{key}={value} of {} is not a number", event.written))
    };
    if let Some(word) = WORDS.iter().position(|known| *known == key) {
        words[word] = read(value)?;
    } else if key == "name" {
        value.filter(|name| !name.is_empty()).ok_or("name= wants a name")?.clone_into(&mut event.name);
    } else if key == "period" {
        // It only affects sampling.
        read(value)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn with_terms(code: Code, terms: &[(String, Option<String>)], event: &mut Event) -> Result<Openable, String> {
    let mut words = [code.config, 0, 0, 0];
    for (key, value) in terms {
        if !set_common(key, value.as_deref(), &mut words, event)? {
            return Err(format!("{key} is no term of a plain event; name, config and period are"));
        }
    }
    let mut open = plain(Code { config: words[0], ..code }, event);
    set_words(&mut open.attr, words);
    Ok(open)
}

fn set_words(attr: &mut perf_event_attr, words: [u64; 4]) {
    attr.config = words[0];
    attr.__bindgen_anon_3.config1 = words[1];
    attr.__bindgen_anon_4.config2 = words[2];
    attr.config3 = words[3];
}

fn of_pmu(
    pmu: &Pmu,
    terms: &[(String, Option<String>)],
    sysfs: &mut Sysfs,
    event: &mut Event,
) -> Result<Openable, String> {
    let mut words = [0_u64; 4];
    for (key, value) in terms {
        let alias = if value.is_none() { sysfs.alias(&pmu.name, key) } else { None };
        if let Some(stands_for) = alias {
            for term in stands_for.split(',') {
                let (key, value) = term.trim().split_once('=').unwrap_or((term.trim(), "1"));
                // The event leaves this term to whoever uses it.
                if value == "?" && !terms.iter().any(|(given, value)| given == key && value.is_some()) {
                    return Err(format!(
                        "the event needs a value for {key}, e.g. {}/{},{key}=0/",
                        pmu.name, terms[0].0
                    ));
                } else if value != "?" {
                    set(pmu, key, value, &mut words, sysfs, event)?;
                }
            }
            event.unit = sysfs.unit(&pmu.name, key);
        } else if !set_common(key, value.as_deref(), &mut words, event)? {
            set(pmu, key, value.as_deref().unwrap_or("1"), &mut words, sysfs, event)?;
        }
    }
    let mut attr = attr(Code { kind: pmu.kind, config: 0 });
    set_words(&mut attr, words);
    if pmu.core {
        attr.set_exclude_guest(1);
    }
    event.cpus.clone_from(&pmu.cpus);
    let class = match pmu.kind {
        PERF_TYPE_SOFTWARE => Class::Software,
        _ if pmu.core => Class::Hardware,
        _ => Class::OtherPmu,
    };
    Ok(Openable { attr, class })
}

fn set(
    pmu: &Pmu,
    key: &str,
    value: &str,
    words: &mut [u64; 4],
    sysfs: &mut Sysfs,
    event: &mut Event,
) -> Result<(), String> {
    // An alias may set a whole word.
    if WORDS.contains(&key) {
        return set_common(key, Some(value), words, event).map(drop);
    }
    let pmu = &pmu.name;
    // In perf, rNNN between slashes is the whole config word.
    if let Some(raw) = symbol(key).filter(|code| code.kind == PERF_TYPE_RAW && value == "1")
        && sysfs.format(pmu, key).is_none()
    {
        words[0] = raw.config;
        return Ok(());
    }
    let format =
        sysfs.format(pmu, key).ok_or_else(|| format!("PMU {pmu} has neither an event nor a term named {key}"))?;
    let number = number(value).ok_or_else(|| format!("{key}={value} of PMU {pmu} is not a number"))?;
    words[format.word] |= format.place(number).ok_or_else(|| format!("{key}={value} does not fit PMU {pmu}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::super::sysfs::tests::tree;
    use super::*;

    const HOST: &[(&str, &str)] = &[
        ("sys/bus/event_source/devices/cpu/type", "4\n"),
        ("sys/bus/event_source/devices/cpu/format/event", "config:0-7\n"),
        ("sys/bus/event_source/devices/cpu/format/umask", "config:8-15\n"),
        ("sys/bus/event_source/devices/cpu/format/ldlat", "config1:0-15\n"),
        ("sys/bus/event_source/devices/cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("sys/bus/event_source/devices/cpu/format/wide", "config3:4-7\n"),
        ("sys/bus/event_source/devices/cpu/events/of-core", "event=0x7,umask=?\n"),
        ("sys/bus/event_source/devices/uncore_imc_0/type", "20\n"),
        ("sys/bus/event_source/devices/uncore_imc_0/cpumask", "18,0\n"),
        ("sys/bus/event_source/devices/uncore_imc_0/format/event", "config:0-7\n"),
        ("sys/bus/event_source/devices/uncore_imc_0/events/clockticks", "event=0x0\n"),
        ("sys/bus/event_source/devices/uncore_imc_11/type", "21\n"),
        ("sys/bus/event_source/devices/uncore_imc_11/cpumask", "0\n"),
        ("sys/bus/event_source/devices/uncore_imc_11/format/event", "config:0-7\n"),
        ("sys/bus/event_source/devices/uncore_imc_free_running/type", "22\n"),
        ("sys/bus/event_source/devices/power/type", "9\n"),
        ("sys/bus/event_source/devices/power/cpumask", "0,18\n"),
        ("sys/bus/event_source/devices/power/format/event", "config:0-7\n"),
        ("sys/bus/event_source/devices/power/events/energy-pkg", "event=0x02\n"),
        ("sys/bus/event_source/devices/power/events/energy-pkg.unit", "Joules\n"),
        ("sys/kernel/tracing/events/sched/sched_switch/id", "301\n"),
        ("sys/kernel/tracing/events/sched/sched_wakeup/id", "302\n"),
    ];

    fn one(text: &str) -> Event {
        let (_dir, mut sysfs) = tree(HOST);
        resolve(&parse(text).unwrap(), &mut sysfs).events.remove(0)
    }

    #[test]
    fn a_pmu_s_terms_and_aliases_become_config_words() {
        let open = one("cpu/event=0x3c,umask=1/u").open.unwrap();
        assert_eq!((open.attr.type_, open.attr.config, open.class), (4, 0x13c, Class::Hardware));
        assert_eq!((open.attr.exclude_kernel(), open.attr.exclude_user(), open.attr.exclude_guest()), (1, 0, 1));
        let open = one("cpu/mem-loads/").open.unwrap();
        assert_eq!(open.attr.config, 0x1cd);
        let open = one("cpu/r1a8/").open.unwrap();
        assert_eq!(open.attr.config, 0x1a8);
        let event = one("power/energy-pkg/");
        assert_eq!((event.cpus, event.unit.as_str()), (Some(vec![0, 18]), "Joules"));
        let event = one("cpu/event=1,name=mine/");
        assert_eq!((event.name.as_str(), event.written.as_str()), ("mine", "cpu/event=1,name=mine/"));
        assert_eq!(one("cpu/event=1,wide=3,config1=9,period=7/").open.unwrap().attr.config3, 0x30);
        assert_eq!(one("cpu/of-core,umask=2/").open.unwrap().attr.config, 0x207);
    }

    #[test]
    fn a_plain_name_takes_terms() {
        let event = one("cpu-clock/name=clk/u");
        let open = event.open.unwrap();
        assert_eq!((event.name.as_str(), event.unit.as_str(), open.attr.exclude_kernel()), ("clk", "msec", 1));
        let open = one("cs/config=0x2,period=5/").open.unwrap();
        assert_eq!((open.attr.type_, open.attr.config, open.class), (1, 2, Class::Software));
        assert_eq!(one("r1a8/name=x/").open.unwrap().attr.config, 0x1a8);
        let open = one("3:0x10002/name=LLC-load-misses/").open.unwrap();
        assert_eq!((open.attr.type_, open.attr.config, open.class), (3, 0x1_0002, Class::Hardware));
    }

    #[test]
    fn a_pmu_without_its_number_is_every_instance_and_odd_members_open_alone() {
        let (_dir, mut sysfs) = tree(HOST);
        let list = resolve(&parse("imc/event=1/,uncore_imc/event=2/,clockticks").unwrap(), &mut sysfs);
        let names: Vec<&str> = list.events.iter().map(|event| event.name.as_str()).collect();
        let instances =
            ["uncore_imc_0/event=1/", "uncore_imc_11/event=1/", "uncore_imc_0/event=2/", "uncore_imc_11/event=2/"];
        assert_eq!((&names[..4], names[4]), (&instances[..], "clockticks"));
        // The masks 18,0 and 0,18 are the same; 0 is another.
        for order in [
            "power/energy-pkg/,uncore_imc_0/event=1/,uncore_imc_11/event=1/",
            "uncore_imc_0/event=1/,uncore_imc_11/event=1/,power/energy-pkg/",
        ] {
            let list = resolve(&parse(&format!("{{{order}}}")).unwrap(), &mut sysfs);
            assert_eq!(list.groups.iter().map(|group| group.members.len()).collect::<Vec<_>>(), [2, 1], "{order}");
            assert!(list.notes.len() == 1 && list.notes[0].contains("uncore_imc_11"), "{:?}", list.notes);
        }
    }

    #[test]
    fn what_does_not_exist_stays_in_the_list_and_says_why() {
        for (text, why) in [
            ("cyclez", "unknown event cyclez (perf list"),
            ("nofile.txt", "nor is there a file of that name"),
            ("nmu/x/", "no PMU nmu"),
            ("cpu/nothing/", "neither an event nor a term"),
            ("cpu/event=x/", "not a number"),
            ("cpu/event=0x100/", "does not fit"),
            ("cpu/of-core/", "a value for umask"),
            ("cs/umask=1/", "no term of a plain event"),
            ("cs/name/", "wants a name"),
            ("sched:nothing", "no such trace event"),
        ] {
            let event = one(text);
            assert!(event.open.as_ref().unwrap_err().contains(why), "{event:?}");
            assert_eq!(event.name, text);
        }
    }

    #[test]
    fn groups_stay_whole() {
        let (_dir, mut sysfs) = tree(HOST);
        let list =
            resolve(&parse("{cs,cpu-clock}:W,{dummy,sched:sched_wakeup,sched:sched_switch}").unwrap(), &mut sysfs);
        let sizes: Vec<usize> = list.groups.iter().map(|group| group.members.len()).collect();
        assert_eq!((sizes, list.groups[0].weak, list.groups[1].weak), (vec![2, 3], true, false));
        assert_eq!((list.events[1].unit.as_str(), list.main_class()), ("msec", Some(Class::Software)));
        assert_eq!(list.to_perf(None).matches("}:W").count(), 1);
        assert_eq!(list.to_perf(Some(3)).matches('{').count(), 2);
    }
}
