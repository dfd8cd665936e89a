//! What documents of the same schema looked like before, made into what they are now.

use serde_json::{Map, Value, json};

/// Converts a whole document.
pub(super) fn convert(document: &mut Value) {
    experiment(document);
    for arm in document.get_mut("arms").and_then(Value::as_array_mut).into_iter().flatten() {
        let Value::Object(arm) = arm else { continue };
        totals(arm);
        set_ups(arm);
    }
}

/// `guest-stat` was once `stat-setup` carried out in a guest.
fn experiment(document: &mut Value) {
    if document["experiment"] == "stat-setup" && document["in"] == "guest" {
        document["experiment"] = "guest-stat".into();
    }
}

/// `stat-setup` once had the total of each round in `rounds_ns`, and neither their phases nor their start.
fn totals(arm: &mut Map<String, Value>) {
    if arm.contains_key("rounds") {
        return;
    }
    // Anything but a list of numbers is left for the reader to refuse.
    let Some(totals) = arm.get("rounds_ns").and_then(Value::as_array) else { return };
    let round = |(number, total): (u64, &Value)| {
        let ns = total.as_u64()?;
        let total = json!({"count": 1, "min": ns, "p50": ns, "max": ns, "mean": ns});
        Some(json!({"round": number, "complete": true, "started_ns": 0, "total_ns": total}))
    };
    if let Some(rounds) = (0..).zip(totals).map(round).collect::<Option<Vec<Value>>>() {
        arm.insert("rounds".to_owned(), rounds.into());
    }
}

/// Whole set-ups of a guest were once summarized among the phases only.
fn set_ups(arm: &mut Map<String, Value>) {
    let whole = arm.get("phases").and_then(|phases| phases.get("set-up")?.get("total_ns")).cloned();
    if let (Some(whole), false) = (whole, arm.contains_key("set_up_ns")) {
        arm.insert("set_up_ns".to_owned(), whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(arm: &Value) -> Map<String, Value> {
        let mut document = json!({"arms": [arm]});
        convert(&mut document);
        document["arms"][0].as_object().unwrap().clone()
    }

    #[test]
    fn set_ups_in_a_guest_are_an_experiment_of_their_own() {
        let name = |mut document: Value| {
            convert(&mut document);
            document["experiment"].clone()
        };
        assert_eq!(name(json!({"experiment": "stat-setup", "in": "guest"})), "guest-stat");
        assert_eq!(name(json!({"experiment": "stat-setup", "in": "host"})), "stat-setup");
        assert_eq!(name(json!({"experiment": "stat-setup"})), "stat-setup");
        assert!(name(json!([])).is_null());
    }

    #[test]
    fn totals_become_rounds_and_nothing_else_does() {
        let arm = converted(&json!({"rounds_ns": [5, 7]}));
        assert_eq!((&arm["rounds"][1]["round"], &arm["rounds"][1]["total_ns"]["p50"]), (&json!(1), &json!(7)));
        for arm in [json!({"rounds_ns": [5, -7]}), json!({"rounds_ns": 5}), json!({})] {
            assert!(!converted(&arm).contains_key("rounds"));
        }
        let arm = converted(&json!({"rounds": [], "rounds_ns": [5]}));
        assert_eq!(arm["rounds"], json!([]));
    }

    #[test]
    fn whole_set_ups_become_a_metric_of_the_arm() {
        let arm = converted(&json!({"phases": {"set-up": {"total_ns": {"p50": 5}}}}));
        assert_eq!(arm["set_up_ns"], json!({"p50": 5}));
        let arm = converted(&json!({"set_up_ns": 1, "phases": {"set-up": {"total_ns": {"p50": 5}}}}));
        assert_eq!(arm["set_up_ns"], json!(1));
    }
}
