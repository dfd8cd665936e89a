//! Hosts by periods: how far each is from its class.

use std::collections::BTreeMap;

use super::grid::Grid;
use super::odd::OddHost;
use super::spread::centre;

/// A row of the heat map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeatRow {
    /// Host, or class.
    pub(crate) name: String,
    pub(crate) class: String,
    /// Difference from the class's middle over all periods, per period, as a logarithm.
    pub(crate) cells: Vec<Option<f64>>,
}

/// The heat map.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Heat {
    /// Odd hosts, in their order.
    pub(crate) odd: Vec<HeatRow>,
    /// Middle of each class.
    pub(crate) classes: Vec<HeatRow>,
    /// All hosts by class and name.
    pub(crate) hosts: Vec<HeatRow>,
}

/// The heat map of the speed of hosts.
pub(super) fn heat(grid: &Grid<'_>, odd: &[OddHost]) -> Heat {
    let mut heat = Heat::default();
    for (class, name) in grid.classes.iter().enumerate() {
        let Some(series) = grid.speed(class).map(|index| &grid.series[index]) else { continue };
        let middle = centre(&series.points.iter().map(|point| point.log).collect::<Vec<_>>()).unwrap_or(0.0);
        let mut rows: BTreeMap<&str, Vec<Option<f64>>> = BTreeMap::new();
        let mut by_period: Vec<Vec<f64>> = vec![Vec::new(); grid.periods.len()];
        for point in &series.points {
            let meta = grid.meta[point.run];
            let row = rows.entry(&grid.hosts[meta.host].name).or_insert_with(|| vec![None; grid.periods.len()]);
            row[meta.period] = Some(point.log - middle);
            by_period[meta.period].push(point.log - middle);
        }
        let cells = by_period.iter().map(|values| centre(values)).collect();
        heat.classes.push(HeatRow { name: name.clone(), class: name.clone(), cells });
        let row =
            |(host, cells): (&str, Vec<Option<f64>>)| HeatRow { name: host.to_owned(), class: name.clone(), cells };
        heat.hosts.extend(rows.into_iter().map(row));
    }
    let row = |host: &OddHost| heat.hosts.iter().find(|row| row.name == host.host && row.class == host.class).cloned();
    heat.odd = odd.iter().filter_map(row).collect();
    heat
}
