//! The code of a guest's kernel, by the guest's own account.

/// The code of a kernel at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The kernel's own build-id.
    pub build_id: Option<Vec<u8>>,
    /// Its modules, in ascending order of their addresses.
    pub modules: Vec<Module>,
    /// Lines of the list of modules that are none, or whose address the kernel hides.
    pub left_out: usize,
}

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its name, of letters, digits, `_` and `-`.
    pub name: String,
    /// Address at which its code begins.
    pub address: u64,
    /// Bytes of it and its data. Since Linux 6.4 these may lie apart, and the code is shorter.
    pub size: u64,
    /// Names and addresses of its sections. The sizes are not known.
    pub sections: Vec<(String, u64)>,
    /// Its build-id.
    pub build_id: Option<Vec<u8>>,
}
