//! What documents of the same schema looked like before, made into what they are now.

use serde_json::{Map, Value, json};

/// `stat-setup --in host` once had the total of each round in `rounds_ns`, and neither their phases nor their start.
pub(super) fn convert(arm: &mut Map<String, Value>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(arm: Value) -> Map<String, Value> {
        let Value::Object(mut arm) = arm else { panic!("not an object") };
        convert(&mut arm);
        arm
    }

    #[test]
    fn totals_become_rounds_and_nothing_else_does() {
        let arm = converted(json!({"rounds_ns": [5, 7]}));
        assert_eq!((&arm["rounds"][1]["round"], &arm["rounds"][1]["total_ns"]["p50"]), (&json!(1), &json!(7)));
        for arm in [json!({"rounds_ns": [5, -7]}), json!({"rounds_ns": 5}), json!({})] {
            assert!(!converted(arm).contains_key("rounds"));
        }
        let arm = converted(json!({"rounds": [], "rounds_ns": [5]}));
        assert_eq!(arm["rounds"], json!([]));
    }
}
