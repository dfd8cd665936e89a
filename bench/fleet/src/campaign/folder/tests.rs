use super::*;
use crate::campaign::element::elements;
use crate::campaign::fixture::{done, plan, submitted, tool};
use crate::campaign::submission::{Terms, submit};

const PLAN: &str = "name = 'x'\nexperiment = [{ run = 'sim' }]\nhosts = [{ names = 'a,b' }]";

#[test]
fn a_campaign_is_found_again_and_another_plan_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    assert!(Folder::open(&path).unwrap_err().to_string().contains("is no campaign"));
    let (folder, campaign) = submitted(&path, PLAN);
    assert_eq!(campaign.elements.len(), 2);
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(std::fs::read(folder.binary(&campaign.binaries["default"])).unwrap(), own);
    assert_eq!(submitted(&path, PLAN), (folder.clone(), campaign.clone()));
    assert_eq!(Folder::own(&path, Trust::Own).unwrap(), (folder, campaign));
    let other = plan(&PLAN.replace("a,b", "a,c"));
    let error = submit(&path, &other, elements(&other, &|_| None), tool(), 9, Terms::default()).unwrap_err();
    assert!(error.to_string().contains("holds another campaign"), "{error}");
}

#[test]
fn the_first_outcome_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, _) = submitted(dir.path(), PLAN);
    assert_eq!(folder.next_attempt(1).unwrap().0, 1);
    assert_eq!(folder.next_attempt(1).unwrap().0, 2);
    assert_eq!(folder.done(1).unwrap(), None);
    assert!(folder.finish(&done(1, 1, 0)).unwrap());
    assert!(!folder.finish(&done(1, 2, 4)).unwrap());
    let found = folder.done(1).unwrap().unwrap();
    assert_eq!(found, done(1, 1, 0));
    folder.forget(&found).unwrap();
    assert_eq!(folder.done(1).unwrap(), None);
}

#[test]
fn what_a_campaign_names_stays_in_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, mut campaign) = submitted(dir.path(), PLAN);
    folder.next_attempt(0).unwrap();
    let path = folder.element(0).join(DONE);
    let of = |document: &str| {
        let outcome = Done { documents: vec![document.to_owned()], ..done(0, 1, 0) };
        std::fs::write(&path, serde_json::to_string(&outcome).unwrap()).unwrap();
        folder.done(0)
    };
    of("elements/000000/attempt-1/a.json").unwrap().unwrap();
    for document in [
        "/etc/passwd",
        "../a.json",
        "elements/000000/attempt-1/../../../a.json",
        "elements/000000/attempt-1/b/a.json",
        "elements/000000/attempt-1",
        "elements/000000/attempt-2/a.json",
        "elements/000001/attempt-1/a.json",
        "",
    ] {
        assert!(of(document).unwrap_err().to_string().contains("is not of its attempt"), "{document}");
    }
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    assert!(folder.done(0).unwrap_err().to_string().contains("it is a link"));
    let refused = |campaign: &Campaign, why: &str| {
        std::fs::write(dir.path().join(CAMPAIGN), serde_json::to_string(campaign).unwrap()).unwrap();
        let error = Folder::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let file = std::mem::replace(&mut campaign.runner.file, "../../x".to_owned());
    refused(&campaign, "is not named by its hash");
    campaign.runner.file = file;
    campaign.elements[1].variant = "../x".to_owned();
    refused(&campaign, "variant '../x'");
}

#[test]
fn damaged_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, _) = submitted(dir.path(), PLAN);
    folder.next_attempt(0).unwrap();
    folder.finish(&done(0, 1, 0)).unwrap();
    let path = folder.element(0).join(DONE);
    std::fs::write(&path, "{\"schema\": ").unwrap();
    assert!(folder.done(0).unwrap_err().to_string().contains("done.json"));
    std::fs::write(&path, serde_json::to_string(&done(1, 1, 0)).unwrap()).unwrap();
    assert!(folder.done(0).unwrap_err().to_string().contains("no outcome of element 0"));
    let path = dir.path().join(CAMPAIGN);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(SCHEMA, "vpmu-campaign/9")).unwrap();
    assert!(Folder::open(dir.path()).unwrap_err().to_string().contains("vpmu-campaign/9"));
}
