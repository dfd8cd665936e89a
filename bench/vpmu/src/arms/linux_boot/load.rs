//! A kernel module to load, with its parameters.

use std::str::FromStr;

/// `NAME`, or `NAME PARAMETER=VALUE …` as insmod(8) takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The module's name.
    pub name: String,
    /// Its parameters, separated by blanks.
    pub parameters: String,
}

impl Load {
    /// Returns whether this is the module of a file with this name; a dash stands for an underscore.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.replace('-', "_") == name
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace();
        let name = words.next().ok_or("an empty name; give NAME or 'NAME PARAMETER=VALUE'")?;
        if name.contains('=') {
            return Err(format!("{name} is a parameter; give 'NAME PARAMETER=VALUE'"));
        }
        let parameters: Vec<_> = words.collect();
        if !parameters.iter().all(|word| word.is_ascii() && !word.chars().any(|c| c.is_ascii_control())) {
            return Err("parameters are ASCII text".to_owned());
        }
        Ok(Self { name: name.to_owned(), parameters: parameters.join(" ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_may_have_parameters() {
        let load: Load = "kvm-amd  enable_mediated_pmu=1 nested=1 ".parse().unwrap();
        assert_eq!((load.name.as_str(), load.parameters.as_str()), ("kvm-amd", "enable_mediated_pmu=1 nested=1"));
        assert!(load.is("kvm_amd") && !load.is("kvm"));
        assert_eq!("kvm".parse::<Load>().unwrap().parameters, "");
        for wrong in ["", "  ", "nested=1", "kvm ü=1", "kvm a=\u{1}"] {
            assert!(wrong.parse::<Load>().is_err(), "{wrong:?}");
        }
    }
}
