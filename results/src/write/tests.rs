//! Tests of writing.

use super::*;

#[test]
fn files_of_one_experiment_share_a_name_and_never_clobber_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = OutputFolder::open(dir.path()).unwrap();
    let json = first.write("run", "json", b"1").unwrap();
    assert_eq!(first.write("run", "json", b"2").unwrap(), json);
    let mut second = OutputFolder::open(dir.path()).unwrap();
    let other = second.write("run", "json", b"3").unwrap();
    assert_eq!(other.file_name().unwrap(), "run-2.json");
    assert_eq!(second.write("run", "hlog", b"4").unwrap().file_name().unwrap(), "run-2.hlog");
    assert_eq!(std::fs::read(json).unwrap(), b"2");
    // Nothing temporary is left.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}

#[test]
fn an_empty_folder_of_ours_goes_away_but_not_one_that_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dir.path().join("a/b");
    drop(OutputFolder::open(&ours).unwrap());
    assert!(!dir.path().join("a").exists());
    drop(OutputFolder::open(dir.path()).unwrap());
    assert!(dir.path().exists());
}

#[test]
fn a_folder_that_is_a_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = OutputFolder::open(&file).unwrap_err();
    assert_eq!(error.exit.code(), 2);
    assert!(error.to_string().contains("-o DIR"));
    assert!(check_file(dir.path()).is_err());
    assert!(check_file(&dir.path().join("none/x.json")).is_err());
    assert!(check_file(&dir.path().join("x.json")).is_ok());
    assert!(check_file(Path::new("/dev/null")).is_ok());
    assert!(replace(Path::new("/dev/null"), b"x").is_ok());
}

#[test]
fn time_stamps_know_leap_years() {
    for (unix, stamp) in [
        (0, "19700101T000000Z"),
        (951_782_400, "20000229T000000Z"),
        (1_709_164_800, "20240229T000000Z"),
        (1_735_689_599, "20241231T235959Z"),
    ] {
        assert_eq!(time_stamp(unix), stamp);
    }
}
