//! Lookup: from parsed events to perf_event_attr.

use perf_event_open_sys::bindings::{
    PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT, perf_event_attr,
};

use super::names::{Code, symbol};
use super::parse::{Kind, MAX_EVENTS, Written, WrittenGroup};
use super::sysfs::{Pmu, Sysfs};
use super::{Class, Event, EventList, Group, Openable};

/// Creates an attribute with type, config and size only.
#[must_use]
pub fn attr(code: Code) -> perf_event_attr {
    perf_event_attr {
        type_: code.kind,
        size: u32::try_from(size_of::<perf_event_attr>()).unwrap_or(0),
        config: code.config,
        ..perf_event_attr::default()
    }
}

/// Looks a list up on this host. An unknown event stays in the list, with the reason.
#[must_use]
pub fn resolve(written: &[WrittenGroup], sysfs: &mut Sysfs) -> EventList {
    let mut list = EventList::default();
    for group in written {
        let first = list.events.len();
        for event in &group.events {
            for event in expand(event, sysfs) {
                if list.events.len() < MAX_EVENTS {
                    list.events.push(look_up(&event, sysfs));
                }
            }
        }
        let found = first..list.events.len();
        // A pattern outside of braces expands to single events, not to a group.
        if group.events.len() == 1 {
            list.groups.extend(found.map(|event| Group { members: vec![event], weak: group.weak }));
        } else {
            list.groups.push(Group { members: found.collect(), weak: group.weak });
        }
    }
    list
}

/// Expands a pattern to the matching trace events; other events are returned as they are.
fn expand(event: &Written, sysfs: &Sysfs) -> Vec<Written> {
    let Kind::Tracepoint { group, name } = &event.kind else { return vec![event.clone()] };
    if !group.contains(['*', '?']) && !name.contains(['*', '?']) {
        return vec![event.clone()];
    }
    let letters = event.text.splitn(3, ':').nth(2).map(|letters| format!(":{letters}")).unwrap_or_default();
    let found = sysfs.tracepoints(group, name);
    let mut events = Vec::new();
    for (group, names) in found {
        for name in names {
            events.push(Written {
                text: format!("{group}:{name}{letters}"),
                kind: Kind::Tracepoint { group: group.clone(), name },
                modifiers: event.modifiers,
            });
        }
    }
    if events.is_empty() { vec![event.clone()] } else { events }
}

fn look_up(event: &Written, sysfs: &mut Sysfs) -> Event {
    let mut found =
        Event { name: event.text.clone(), open: Err(String::new()), cpus: None, scale: 1.0, unit: String::new() };
    let open = match &event.kind {
        Kind::Symbol(name) => symbol(name).map(|code| plain(code, &mut found)).ok_or_else(|| unknown(name)),
        Kind::Tracepoint { group, name } => sysfs.tracepoint(group, name).map(|id| Openable {
            attr: attr(Code { kind: PERF_TYPE_TRACEPOINT, config: id }),
            class: Class::Tracepoint,
        }),
        Kind::Pmu { pmu, terms } => sysfs.pmu(pmu).and_then(|pmu| of_pmu(&pmu, terms, sysfs, &mut found)),
    };
    found.open = open.map(|mut open| {
        event.modifiers.apply(&mut open.attr);
        open
    });
    found
}

fn unknown(name: &str) -> String {
    format!("unknown event {name} (perf list shows the known ones)")
}

fn plain(code: Code, event: &mut Event) -> Openable {
    let mut attr = attr(code);
    let class = match code.kind {
        PERF_TYPE_SOFTWARE => Class::Software,
        _ => Class::Hardware,
    };
    if matches!(code.kind, PERF_TYPE_HARDWARE | PERF_TYPE_HW_CACHE | PERF_TYPE_RAW) {
        // perf's default for events of the core PMU.
        attr.set_exclude_guest(1);
    }
    if code.kind == PERF_TYPE_SOFTWARE && code.config <= 1 {
        // Clocks count ns; perf prints ms.
        event.scale = 1e-6;
        "msec".clone_into(&mut event.unit);
    }
    Openable { attr, class }
}

/// Reads a decimal or 0x-prefixed number.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn of_pmu(
    pmu: &Pmu,
    terms: &[(String, Option<String>)],
    sysfs: &mut Sysfs,
    event: &mut Event,
) -> Result<Openable, String> {
    let mut words = [0_u64; 3];
    for (key, value) in terms {
        let alias = if value.is_none() { sysfs.alias(&pmu.name, key) } else { None };
        if let Some(stands_for) = alias {
            for term in stands_for.split(',') {
                let (key, value) = term.trim().split_once('=').unwrap_or((term.trim(), "1"));
                set(pmu, key, value, &mut words, sysfs, event)?;
            }
            (event.unit, event.scale) = sysfs.unit(&pmu.name, key);
        } else {
            set(pmu, key, value.as_deref().unwrap_or("1"), &mut words, sysfs, event)?;
        }
    }
    let mut attr = attr(Code { kind: pmu.kind, config: words[0] });
    attr.__bindgen_anon_3.config1 = words[1];
    attr.__bindgen_anon_4.config2 = words[2];
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
    words: &mut [u64; 3],
    sysfs: &mut Sysfs,
    event: &mut Event,
) -> Result<(), String> {
    if key == "name" {
        value.clone_into(&mut event.name);
        return Ok(());
    }
    let pmu = &pmu.name;
    if let Some(word) = ["config", "config1", "config2"].iter().position(|known| *known == key) {
        words[word] = number(value).ok_or_else(|| format!("{key}={value} of PMU {pmu} is not a number"))?;
        return Ok(());
    }
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
        ("sys/bus/event_source/devices/power/type", "9\n"),
        ("sys/bus/event_source/devices/power/cpumask", "0,18\n"),
        ("sys/bus/event_source/devices/power/format/event", "config:0-7\n"),
        ("sys/bus/event_source/devices/power/events/energy-pkg", "event=0x02\n"),
        ("sys/bus/event_source/devices/power/events/energy-pkg.unit", "Joules\n"),
        ("sys/bus/event_source/devices/power/events/energy-pkg.scale", "2.3283064365386962890625e-10\n"),
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
        assert!(event.scale < 1e-9 && event.scale > 0.0);
        assert_eq!(one("cpu/event=1,name=mine/").name, "mine");
    }

    #[test]
    fn what_does_not_exist_stays_in_the_list_and_says_why() {
        for (text, why) in [
            ("cyclez", "unknown event"),
            ("nmu/x/", "no PMU nmu"),
            ("cpu/nothing/", "neither an event nor a term"),
            ("cpu/event=x/", "not a number"),
            ("cpu/event=0x100/", "does not fit"),
            ("cpu/config=zz/", "not a number"),
            ("sched:nothing", "no such trace event"),
            ("nope:*", "no such trace event"),
        ] {
            let event = one(text);
            assert!(event.open.as_ref().unwrap_err().contains(why), "{event:?}");
            assert_eq!(event.name, text);
        }
    }

    #[test]
    fn patterns_stand_for_every_match_and_groups_stay_whole() {
        let (_dir, mut sysfs) = tree(HOST);
        let list = resolve(&parse("sched:*:k,{cs,cpu-clock}:W,{dummy,sched:*}").unwrap(), &mut sysfs);
        let names: Vec<&str> = list.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names[..2], ["sched:sched_switch:k", "sched:sched_wakeup:k"]);
        let sizes: Vec<usize> = list.groups.iter().map(|group| group.members.len()).collect();
        assert_eq!(sizes, [1, 1, 2, 3]);
        assert!(list.groups[2].weak && !list.groups[3].weak);
        assert_eq!(list.events[3].unit, "msec");
        assert_eq!(list.main_class(), Some(Class::Tracepoint));
        assert_eq!(list.to_perf(None).matches("}:W").count(), 1);
        assert_eq!(list.to_perf(Some(4)).matches('{').count(), 2);
    }
}
