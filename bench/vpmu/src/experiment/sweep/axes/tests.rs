use std::path::Path;

use host_pmu::strategy::PRESETS;

use super::super::grid::Seeds;
use super::*;

fn grid(toml: &str) -> Grid {
    toml::from_str(toml).unwrap()
}

fn points(toml: &str) -> Vec<GridPoint> {
    grid(toml).points().unwrap().0
}

#[test]
fn an_empty_grid_is_every_preset_on_the_default_model() {
    let points = points("");
    let names: Vec<&str> = points.iter().map(|point| point.strategy.as_str()).collect();
    assert_eq!(names, PRESETS);
    assert!(points.iter().all(|point| point.model == simulated::DEFAULT_MODEL && point.seed == 1));
}

#[test]
fn axes_multiply_and_seeds_go_fastest() {
    let points = points(
        "strategy = ['reuse', 'pool']\nworkload = ['sampling4', 'io']\nvcpus = [1, 2]\nseed = ['1-2', 9]\n\
         cost.open = [0.1, 1]\ncost.exit = [1, 2, 3]",
    );
    assert_eq!(points.len(), 2 * 2 * 2 * 3 * 2 * 3);
    assert_eq!(points.iter().take(4).map(|p| p.seed).collect::<Vec<_>>(), [1, 2, 9, 1]);
    assert_eq!(points[3].strategy, "pool");
    assert_eq!(points[0].costs, BTreeMap::from([("exit".to_owned(), 1.0), ("open".to_owned(), 0.1)]));
    let keys: BTreeSet<String> = points.iter().map(GridPoint::key).collect();
    assert_eq!(keys.len(), points.len());
}

#[test]
fn values_that_mean_the_same_give_one_point() {
    // Only 4 vCPUs on 1 CPU have slices; only reuse-lazy counts them.
    let points = points(
        "strategy = ['reuse', 'reuse-lazy']\nvcpus = [1, 4]\ncpus = [1, 8]\nslice = ['1ms', '5ms']\nrelease-slices = [1, 3]",
    );
    let points_of = |strategy: &str, vcpus, cpus| {
        points.iter().filter(|p| (p.strategy.as_str(), p.vcpus, p.cpus) == (strategy, vcpus, cpus)).count()
    };
    assert_eq!([points_of("reuse", 1, 1), points_of("reuse", 4, 1), points_of("reuse", 4, 4)], [1, 2, 1]);
    assert_eq!(
        [points_of("reuse-lazy", 1, 1), points_of("reuse-lazy", 4, 1), points_of("reuse-lazy", 4, 4)],
        [2, 4, 2]
    );
    let lazy = points.iter().find(|p| p.release_slices == Some(3)).unwrap();
    assert_eq!(lazy.arm(), "reuse-lazy slices=3");
    assert!(lazy.definition.contains("slices = 3"));
}

#[test]
fn bad_grids_are_refused_with_the_axis() {
    for (toml, needle) in [
        ("strategy = []", "strategy: the axis has no values"),
        ("cost.open = []", "cost.open: the axis has no values"),
        ("seed = []", "seed: the axis has no values"),
        ("strategy = ['mediated']", "model development-host cannot have strategy mediated"),
        ("strategy = ['mediated']\nmodel = ['development-host-tracepoint']", "its events count exits"),
        ("strategy = ['reuse', 'reuse']", "strategy: duplicate value reuse"),
        ("strategy = ['reus']", "unknown strategy 'reus'"),
        ("strategy = ['floor']", "always part of a comparison"),
        ("strategy = ['none.toml']", "No such file"),
        ("model = ['clx']", "There are development-host"),
        ("workload = ['spin']", "unknown workload"),
        ("vcpus = [0]", "vcpus: 0 is out of range; give 1 to 16384"),
        ("vcpus = [16385]", "vcpus: 16385 is out of range"),
        ("vcpus = [1]\ncpus = [2]", "more cpus than vcpus"),
        ("slice = ['1ms', '2ms']", "slice makes no difference"),
        ("slice = ['1']", "slice: '1': a duration needs its unit"),
        ("slice = ['0ns']\nvcpus = [2]\ncpus = [1]", "slice: 0ns is out of range"),
        ("release-slices = [1, 2]\nstrategy = ['reuse']", "release-slices makes no difference"),
        ("release-slices = [0]", "release-slices: 0"),
        ("cost.opne = [1]", "cost: there is no 'opne'"),
        ("cost.open = [-1.0]", "cost.open: -1 is not a factor"),
        ("cost.open = [nan]", "cost.open: NaN is not a factor"),
        ("cost.open = [1, 1.0]", "cost.open: duplicate value 1"),
        ("cost.open = [2]\ncost.open-first = [2]", "open also scales open-first"),
        ("seed = ['3-1']", "seed: 3-1 is a range from high to low"),
        ("seed = ['a']", "seed: 'a'"),
        ("seed = ['0-99999999999']", "seed: too many"),
        ("seed = ['1-4', 2]", "seed: duplicate value"),
        ("strategy = ['reuse']\nseed = ['1-99999']\nvcpus = [1, 2]", "the grid has 199998 points"),
        ("period = 100\nfreq = 100", "period and freq exclude"),
        ("period = 0", "period: 0 is out of range"),
        ("samples = 0", "samples: 0"),
        ("timer = 'late'", "timer: there is no 'late'"),
        ("time-limit = '5ms'", "shorter than two ticks"),
    ] {
        let error = grid(toml).points().unwrap_err();
        assert_eq!(error.exit.code(), 2);
        let line = error.to_string();
        assert!(line.contains(needle) && !line.contains('\n'), "{toml}: {line:?} lacks {needle:?}");
    }
}

#[test]
fn a_grid_file_is_read_from_its_folder_and_what_is_wrong_has_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    write("mine.toml", b"reuse = 'last'\nrelease = 'never'\napply = 'at-once'");
    let path = write("grid.toml", b"strategy = ['mine.toml', 'reuse']\nseed = [1, 2]\nperiod = 1000");
    let grid = Grid::from_file(&path).unwrap();
    let command_line = Grid { seed: Some(vec![Seeds::Text("5".to_owned())]), freq: Some(99), ..Grid::default() };
    let (points, _) = grid.overridden_by(&command_line).unwrap().points().unwrap();
    assert_eq!(points.iter().map(|p| (p.strategy.as_str(), p.seed)).collect::<Vec<_>>(), [("mine", 5), ("reuse", 5)]);
    assert_eq!(points[0].freq_hz, Some(99), "a frequency replaces a period");
    for (text, needle) in [
        (&b"\nstrategies = ['reuse']"[..], "line 2: unknown field `strategies`"),
        (b"vcpus = ['two']", "line 1"),
        (b"vcpus = [-1]", "line 1"),
        (b"vcpus = ", "line 1"),
        (b"\xff", "UTF-8"),
        (&vec![b'#'; 300_000], "larger"),
    ] {
        let error = Grid::from_file(&write("bad.toml", text)).unwrap_err();
        assert_eq!(error.exit.code(), 2);
        let line = error.to_string();
        assert!(line.contains(needle) && !line.contains('\n'), "{line:?} lacks {needle:?}");
    }
    assert!(Grid::from_file(Path::new("/nonexistent")).unwrap_err().to_string().contains("No such file"));
}

proptest::proptest! {
    /// Any text is a grid or refused in one line.
    #[test]
    fn any_text_is_a_grid_or_refused(text in "[a-z.=\\[\\]{}\n'0-9, -]{0,120}") {
        if let Ok(grid) = toml::from_str::<Grid>(&text) {
            let _ = grid.points();
        }
    }
}
