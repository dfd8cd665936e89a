//! Texts that many runs share, each kept once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::entry::Entry;
use crate::run::Run;

/// Each text and each set of facts once.
#[derive(Debug, Default)]
pub(super) struct Names {
    texts: HashSet<Arc<str>>,
    facts: HashSet<Arc<BTreeMap<String, String>>>,
}

impl Names {
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }

    fn shared_facts(&mut self, facts: &Arc<BTreeMap<String, String>>) -> Arc<BTreeMap<String, String>> {
        if let Some(known) = self.facts.get(facts) {
            return known.clone();
        }
        self.facts.insert(facts.clone());
        facts.clone()
    }

    /// Replaces the texts of an entry by the shared ones.
    pub(super) fn share(&mut self, entry: &mut Entry) {
        let Run { experiment, setting, key, backend, host, boot, facts, figures, .. } = &mut entry.run;
        for text in [experiment, setting, key, backend, host, boot, &mut entry.document_host] {
            *text = self.text(text);
        }
        *facts = self.shared_facts(facts);
        for figure in figures.iter_mut() {
            figure.arm = self.text(&figure.arm);
            figure.metric = self.text(&figure.metric);
            if let Some(doubt) = &mut figure.doubt {
                *doubt = self.text(doubt);
            }
        }
        figures.shrink_to_fit();
    }
}
