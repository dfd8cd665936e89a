-- The index of a folder of documents, as docs/fleet.md describes it. A cache: it may be removed at any time.
CREATE TABLE setting (
    id INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    label TEXT NOT NULL,
    parameters TEXT NOT NULL,
    backend TEXT NOT NULL,
    stand_in INTEGER NOT NULL
);
CREATE TABLE fact (
    facts INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (facts, name)
) WITHOUT ROWID;
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    arm TEXT NOT NULL,
    metric TEXT NOT NULL
);
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    file TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    started_unix INTEGER NOT NULL,
    wall_ns INTEGER NOT NULL,
    setting INTEGER NOT NULL REFERENCES setting (id),
    facts INTEGER NOT NULL,
    document_host TEXT NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    labelled_host TEXT,
    element INTEGER,
    variant TEXT,
    repetition INTEGER,
    checksum INTEGER NOT NULL
);
CREATE TABLE figure (
    run INTEGER NOT NULL REFERENCES run (id),
    series INTEGER NOT NULL REFERENCES series (id),
    rounds INTEGER NOT NULL,
    log_ns REAL NOT NULL,
    log_ns_error REAL,
    log_ratio REAL,
    log_ratio_error REAL,
    doubt TEXT,
    ns REAL NOT NULL,
    ratio REAL
);
CREATE VIEW runs AS
    SELECT run.id AS run, file, host, boot, element, variant, repetition, started_unix, wall_ns,
        experiment, label AS setting, backend, stand_in, parameters,
        (SELECT value FROM fact WHERE fact.facts = run.facts AND name = 'host class') AS host_class,
        (SELECT value FROM fact WHERE fact.facts = run.facts AND name = 'kernel') AS kernel,
        (SELECT value FROM fact WHERE fact.facts = run.facts AND name = 'microcode') AS microcode,
        (SELECT value FROM fact WHERE fact.facts = run.facts AND name = 'revision') AS revision,
        run.facts AS facts
    FROM run JOIN setting ON setting.id = run.setting;
CREATE VIEW figures AS
    SELECT figure.run AS run, arm, metric, rounds, ns, ratio, log_ns, log_ns_error, log_ratio, log_ratio_error, doubt
    FROM figure JOIN series ON series.id = figure.series;
