//! The index's file: an SQLite database that is loaded into memory and replaced as a whole.
//!
//! SQLite itself never opens the file. Its locks do not work on every network file system, and a journal beside the file would
//! have to be whole as well. A reader takes all bytes at once; a writer makes a database in memory and renames it into place.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, MAIN_DB, Row, params};

use super::entry::{Entry, Stamp};
use super::names::Names;
use crate::run::{Figure, Labels, Level, Run};
use results::open;
use results::write::replace;

/// The tables.
const SCHEMA: &str = include_str!("schema.sql");
/// Version of the tables *and* of what a document is reduced to: it grows with either.
const VERSION: u32 = 1;
/// "vPMU": SQLite's `application_id`, which says whose database it is.
const APPLICATION: u32 = 0x7650_4d55;
/// Largest index that is loaded: that of some hundred thousand documents.
const MAX_INDEX: u64 = 1 << 30;

/// What is at the place of the index.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing.
    Absent,
    /// Whole.
    Entries(BTreeMap<String, Entry>),
    /// Ours, and of no use: why. It is replaced.
    Useless(String),
    /// Not ours: it stays as it is.
    Foreign(String),
}

/// Loads the index at `path`.
pub(super) fn load(path: &Path, names: &mut Names) -> Found {
    let bytes = match bytes(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            return match error.kind() {
                ErrorKind::NotFound => Found::Absent,
                ErrorKind::InvalidInput | ErrorKind::FileTooLarge => Found::Foreign(error.to_string()),
                _ => Found::Useless(error.to_string()),
            };
        }
    };
    let header = |at: usize| bytes.get(at..at + 4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    if bytes.is_empty() {
        return Found::Useless("it is empty".to_owned());
    }
    if !bytes.starts_with(b"SQLite format 3\0") || header(68) != Some(APPLICATION) {
        return Found::Foreign("vpmu did not write it".to_owned());
    }
    match header(60) {
        Some(VERSION) => {}
        version => return Found::Useless(format!("it is of version {}, not {VERSION}", version.unwrap_or_default())),
    }
    match database(&bytes).and_then(|database| entries(&database, names)) {
        Ok(entries) => Found::Entries(entries),
        Err(error) => Found::Useless(error.to_string()),
    }
}

fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    open::bytes(open::found(path, MAX_INDEX)?, MAX_INDEX)
}

/// The database of these bytes.
fn database(bytes: &[u8]) -> rusqlite::Result<Connection> {
    let mut database = Connection::open_in_memory()?;
    database.deserialize_read_exact(MAIN_DB, bytes, bytes.len(), false)?;
    database.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
    if objects(&database)? != objects(&empty()?)? {
        return Err(rusqlite::Error::InvalidQuery);
    }
    Ok(database)
}

fn empty() -> rusqlite::Result<Connection> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(SCHEMA)?;
    database.execute_batch(&format!(
        "PRAGMA foreign_keys = OFF; PRAGMA user_version = {VERSION}; PRAGMA application_id = {APPLICATION};"
    ))?;
    Ok(database)
}

/// Every table, index and view, with its definition.
fn objects(database: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let mut query = database.prepare("SELECT type || ' ' || name, sql FROM sqlite_schema ORDER BY 1")?;
    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// What the parameters of a run are.
struct Setting {
    experiment: Arc<str>,
    label: Arc<str>,
    key: Arc<str>,
    backend: Arc<str>,
    stand_in: bool,
}

/// The entries whose checksums are right; others are as if they were not there.
fn entries(database: &Connection, names: &mut Names) -> rusqlite::Result<BTreeMap<String, Entry>> {
    let settings = settings(database, names)?;
    let facts = facts(database, names)?;
    let mut query = database.prepare(
        "SELECT id, file, size, modified_ns, inode, started_unix, wall_ns, setting, facts, document_host, host, boot,
            labelled_host, element, variant, repetition, checksum FROM run",
    )?;
    let mut places = HashMap::new();
    let mut all: Vec<(Entry, u64)> = Vec::new();
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (Some(setting), Some(facts)) = (settings.get(&row.get(7)?), facts.get(&row.get(8)?)) else { continue };
        places.insert(row.get::<_, i64>(0)?, all.len());
        all.push((entry(row, setting, facts, names)?, unsigned(row, 16)?));
    }
    figures(database, names, &places, &mut all)?;
    let whole = all.into_iter().filter(|(entry, checksum)| entry.checksum() == *checksum);
    Ok(whole.map(|(entry, _)| (entry.run.file.clone(), entry)).collect())
}

fn entry(
    row: &Row<'_>,
    setting: &Setting,
    facts: &Arc<BTreeMap<String, String>>,
    names: &mut Names,
) -> rusqlite::Result<Entry> {
    let mut text = |column: usize| -> rusqlite::Result<Arc<str>> { Ok(names.text(row.get_ref(column)?.as_str()?)) };
    let (document_host, host, boot) = (text(9)?, text(10)?, text(11)?);
    Ok(Entry {
        stamp: Stamp { size: unsigned(row, 2)?, modified_ns: row.get(3)?, inode: unsigned(row, 4)? },
        document_host,
        run: Run {
            file: row.get(1)?,
            labels: Labels {
                host: row.get(12)?,
                element: row.get::<_, Option<i64>>(13)?.map(i64::cast_unsigned),
                variant: row.get(14)?,
                repetition: row.get::<_, Option<i64>>(15)?.map(i64::cast_unsigned),
            },
            started_unix: unsigned(row, 5)?,
            wall_ns: unsigned(row, 6)?,
            experiment: setting.experiment.clone(),
            setting: setting.label.clone(),
            key: setting.key.clone(),
            backend: setting.backend.clone(),
            stand_in: setting.stand_in,
            host,
            boot,
            facts: facts.clone(),
            figures: Vec::new(),
        },
    })
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

fn settings(database: &Connection, names: &mut Names) -> rusqlite::Result<HashMap<i64, Setting>> {
    let mut query = database.prepare("SELECT id, experiment, label, parameters, backend, stand_in FROM setting")?;
    let mut found = HashMap::new();
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let mut text = |column: usize| -> rusqlite::Result<Arc<str>> { Ok(names.text(row.get_ref(column)?.as_str()?)) };
        let (experiment, label, key, backend) = (text(1)?, text(2)?, text(3)?, text(4)?);
        found.insert(row.get(0)?, Setting { experiment, label, key, backend, stand_in: row.get(5)? });
    }
    Ok(found)
}

type Facts = Arc<BTreeMap<String, String>>;

fn facts(database: &Connection, names: &mut Names) -> rusqlite::Result<HashMap<i64, Facts>> {
    let mut query = database.prepare("SELECT facts, name, value FROM fact")?;
    let mut found: HashMap<i64, BTreeMap<String, String>> = HashMap::new();
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        found.entry(row.get(0)?).or_default().insert(row.get(1)?, row.get(2)?);
    }
    Ok(found.into_iter().map(|(id, facts)| (id, names.facts(facts))).collect())
}

/// Adds the figures to the entries, in the order in which they were stored.
fn figures(
    database: &Connection,
    names: &mut Names,
    places: &HashMap<i64, usize>,
    all: &mut [(Entry, u64)],
) -> rusqlite::Result<()> {
    let mut query = database.prepare("SELECT id, arm, metric FROM series")?;
    let mut series = HashMap::new();
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (arm, metric) = (names.text(row.get_ref(1)?.as_str()?), names.text(row.get_ref(2)?.as_str()?));
        series.insert(row.get::<_, i64>(0)?, (arm, metric));
    }
    let mut query = database.prepare(
        "SELECT run, series, rounds, log_ns, log_ns_error, log_ratio, log_ratio_error, doubt FROM figure ORDER BY rowid",
    )?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (Some(place), Some((arm, metric))) = (places.get(&row.get(0)?), series.get(&row.get(1)?)) else { continue };
        let error = row.get(6)?;
        all[*place].0.run.figures.push(Figure {
            arm: arm.clone(),
            metric: metric.clone(),
            rounds: unsigned(row, 2)?,
            time: Level { log: row.get(3)?, error: row.get(4)? },
            ratio: row.get::<_, Option<f64>>(5)?.map(|log| Level { log, error }),
            doubt: row.get_ref(7)?.as_str_or_null()?.map(|doubt| names.text(doubt)),
        });
    }
    Ok(())
}

/// Replaces the index at `path`. `changed` are the files whose rows in it are no longer right; with `None`, or with an index
/// that is not whole, it is made anew from all entries.
///
/// # Errors
/// Why it could not be written; what was there is as it was.
pub(super) fn save(
    path: &Path,
    entries: &BTreeMap<String, Entry>,
    changed: Option<&[String]>,
) -> Result<(), Box<dyn std::error::Error>> {
    let kept = changed.and_then(|_| bytes(path).ok()).and_then(|bytes| database(&bytes).ok());
    let (mut database, added): (_, Vec<&Entry>) = match (kept, changed) {
        (Some(database), Some(changed)) => {
            remove(&database, changed)?;
            (database, changed.iter().filter_map(|file| entries.get(file)).collect())
        }
        _ => (empty()?, entries.values().collect()),
    };
    insert(&mut database, &added)?;
    let bytes = database.serialize(MAIN_DB)?;
    Ok(replace(path, &bytes)?)
}

fn remove(database: &Connection, files: &[String]) -> rusqlite::Result<()> {
    database.execute_batch("CREATE TEMP TABLE gone (run INTEGER PRIMARY KEY); BEGIN")?;
    let mut find = database.prepare("INSERT INTO gone SELECT id FROM run WHERE file = ?1")?;
    for file in files {
        find.execute([file])?;
    }
    drop(find);
    database.execute_batch(
        "DELETE FROM figure WHERE run IN (SELECT run FROM gone);
         DELETE FROM run WHERE id IN (SELECT run FROM gone);
         COMMIT; DROP TABLE gone;",
    )
}

/// Numbers of rows, by what is in them.
struct Numbers<K>(HashMap<K, i64>, i64);

impl<K: std::hash::Hash + Eq> Numbers<K> {
    fn after(last: i64) -> Self {
        Self(HashMap::new(), last)
    }

    /// The number of a row, and whether it is a new one.
    fn of(&mut self, key: K) -> (i64, bool) {
        if let Some(number) = self.0.get(&key) {
            return (*number, false);
        }
        self.1 += 1;
        self.0.insert(key, self.1);
        (self.1, true)
    }
}

fn insert(database: &mut Connection, entries: &[&Entry]) -> rusqlite::Result<()> {
    let last = |table: &str, id: &str| {
        database.query_row(&format!("SELECT COALESCE(MAX({id}), 0) FROM {table}"), [], |row| row.get::<_, i64>(0))
    };
    let mut settings = Numbers::after(last("setting", "id")?);
    let mut facts = Numbers::after(last("fact", "facts")?);
    let mut series = Numbers::after(last("series", "id")?);
    let first = last("run", "id")? + 1;
    let transaction = database.transaction()?;
    {
        let mut to_setting = transaction.prepare("INSERT INTO setting VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let mut to_fact = transaction.prepare("INSERT INTO fact VALUES (?1, ?2, ?3)")?;
        let mut to_series = transaction.prepare("INSERT INTO series VALUES (?1, ?2, ?3)")?;
        let mut to_run = transaction.prepare(
            "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        )?;
        let mut to_figure =
            transaction.prepare("INSERT INTO figure VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
        for (id, entry) in (first..).zip(entries) {
            let run = &entry.run;
            let own = (&run.experiment, &run.setting, &run.key, &run.backend, run.stand_in);
            let (setting, new) = settings.of(own);
            if new {
                to_setting.execute(params![setting, own.0, own.1, own.2, own.3, own.4])?;
            }
            let (facts, new) = facts.of(&run.facts);
            if new {
                for (name, value) in run.facts.iter() {
                    to_fact.execute(params![facts, name, value])?;
                }
            }
            let Labels { host, element, variant, repetition } = &run.labels;
            to_run.execute(params![
                id,
                run.file,
                entry.stamp.size.cast_signed(),
                entry.stamp.modified_ns,
                entry.stamp.inode.cast_signed(),
                run.started_unix.cast_signed(),
                run.wall_ns.cast_signed(),
                setting,
                facts,
                entry.document_host,
                run.host,
                run.boot,
                host,
                element.map(u64::cast_signed),
                variant,
                repetition.map(u64::cast_signed),
                entry.checksum().cast_signed(),
            ])?;
            for figure in &run.figures {
                let (series, new) = series.of((&figure.arm, &figure.metric));
                if new {
                    to_series.execute(params![series, figure.arm, figure.metric])?;
                }
                let ratio = figure.ratio;
                to_figure.execute(params![
                    id,
                    series,
                    figure.rounds.cast_signed(),
                    figure.time.log,
                    figure.time.error,
                    ratio.map(|ratio| ratio.log),
                    ratio.and_then(|ratio| ratio.error),
                    figure.doubt,
                    figure.time.log.exp(),
                    ratio.map(|ratio| ratio.log.exp()),
                ])?;
            }
        }
    }
    transaction.commit()
}
