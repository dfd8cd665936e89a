//! Parts of a sweep put together: the bytes that one machine would have written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use results::error::Error;
use results::open;
use results::sweep::Line as Point;
use results::table::layout::plural;
use results::write::Target;

use crate::experiment::sweep::pareto;
use crate::experiment::sweep::show;
use crate::experiment::sweep::store::{FILE, Found};
use crate::terminal::console::complain;
use fleet::campaign::element::Element;
use fleet::campaign::folder::{Campaign, Folder};
use fleet::campaign::standing::{Line, Standing, State};

/// Folder of merged sweeps in a campaign's.
const SWEEPS: &str = "sweeps";

/// Puts the parts of each sweep together, if all are there, and says so; returns how many cannot be. One that cannot hides no other.
pub fn sweeps(folder: &Folder, campaign: &Campaign, standing: &Standing) -> usize {
    let mut sweeps: BTreeMap<String, Vec<(&Element, &Line)>> = BTreeMap::new();
    for (element, line) in
        campaign.elements.iter().zip(&standing.elements).filter(|(element, _)| element.part.is_some())
    {
        // Parts are listed in their order.
        sweeps.entry(format!("{}-{}", element.experiment, element.variant)).or_default().push((element, line));
    }
    let mut bad = 0;
    for (name, parts) in sweeps {
        let missing = parts.iter().filter(|(_, line)| line.state != State::Ok).count();
        if missing > 0 {
            complain(&format!("sweep {name}: {} still missing", plural(missing, "part")));
            continue;
        }
        match one(folder, &name, &parts) {
            Ok((to, points)) => complain(&format!("sweep {name}: {} in {}", plural(points, "point"), to.display())),
            Err(error) => {
                complain(&format!("error: {error}"));
                bad += 1;
            }
        }
    }
    bad
}

/// Puts the parts of a sweep together; returns the folder, and the number of points.
fn one(folder: &Folder, name: &str, parts: &[(&Element, &Line)]) -> Result<(PathBuf, usize), Error> {
    let mut files = Vec::new();
    for (element, line) in parts {
        let document = line.done.as_ref().and_then(|done| done.documents.iter().find(|file| file.ends_with(FILE)));
        let attempt = document.and_then(|file| Path::new(file).parent().map(|parent| folder.path.join(parent)));
        let found = attempt.map(|attempt| Found::read(&attempt)).transpose()?.filter(|found| found.torn == 0);
        let found = found.ok_or_else(|| refuse(&element.name, "its points are not there"))?;
        files.push(found.lines.into_iter().map(|(_, line)| line).collect());
    }
    let lines = interleaved(&files).map_err(|why| refuse(name, &why))?;
    let points = lines.iter().map(|line| serde_json::from_str(line)).collect::<Result<Vec<Point>, _>>();
    let points = points.map_err(|error| refuse(name, &error.to_string()))?;
    let to = folder.path.join(SWEEPS).join(name);
    let path = to.join(FILE);
    let mut text = lines.join("\n");
    text.push('\n');
    let written = open::Folder::make(&to).and_then(|folder| Target::at(&folder, &path)?.replace(text.as_bytes()));
    written
        .map_err(|error| Error::output(format!("cannot write {}", path.display()), &error, "make room, then repeat"))?;
    show::save(&to, &pareto::compare(&points))?;
    Ok((to, lines.len()))
}

fn refuse(name: &str, why: &str) -> Error {
    Error::usage(format!("cannot put the parts of sweep {name} together"), why, "submit the plan to another folder")
}

/// Joins the parts of a grid: point i is in part i mod n.
fn interleaved(parts: &[Vec<String>]) -> Result<Vec<String>, String> {
    let total: usize = parts.iter().map(Vec::len).sum();
    for (at, part) in parts.iter().enumerate() {
        let expected = total / parts.len() + usize::from(at < total % parts.len());
        if part.len() != expected {
            return Err(format!("part {} has {} points of {expected}", at + 1, part.len()));
        }
    }
    Ok((0..total).map(|point| parts[point % parts.len()][point / parts.len()].clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn parts_are_put_together_in_the_order_of_the_grid() {
        let parts = [lines(&["0", "3", "6"]), lines(&["1", "4"]), lines(&["2", "5"])];
        assert_eq!(interleaved(&parts).unwrap(), lines(&["0", "1", "2", "3", "4", "5", "6"]));
        let short = [lines(&["0", "3", "6"]), lines(&["1"]), lines(&["2", "5"])];
        assert!(interleaved(&short).unwrap_err().contains("part 1 has 3 points of 2"));
    }
}
