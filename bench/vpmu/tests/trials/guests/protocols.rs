//! One image of each boot protocol, and of those that are refused by name.

use anyhow::{Result, ensure};

use crate::binary::{text, vpmu};
use crate::counted::assemble;

/// One image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) name: &'static str,
    make: Make,
    code: i32,
    prints: &'static str,
    /// Words that the report or the error must have.
    says: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Make {
    Assembled(&'static [&'static str]),
    Bytes(&'static [u8]),
}

/// All images.
pub(crate) const ALL: [Protocol; 7] = [
    Protocol {
        name: "multiboot_1",
        make: Make::Assembled(&["AT=0", "FLAGS=0"]),
        code: 0,
        prints: "image hello\n",
        says: "boot protocol: multiboot 1",
    },
    Protocol {
        name: "multiboot_1_with_a_video_mode",
        make: Make::Assembled(&["AT=0", "FLAGS=4"]),
        code: 0,
        prints: "image hello\n",
        says: "asks for a video mode",
    },
    Protocol { name: "pvh", make: Make::Assembled(&["PVH"]), code: 0, prints: "hello\n", says: "boot protocol: PVH" },
    refused("a_late_header", Make::Assembled(&["AT=9000", "FLAGS=0"]), "link its section first"),
    refused("multiboot_2", Make::Assembled(&["MULTIBOOT_2"]), "build it for multiboot 1 or PVH"),
    refused("elf_without_a_protocol", Make::Assembled(&["NONE"]), "XEN_ELFNOTE_PHYS32_ENTRY"),
    refused("gzip", Make::Bytes(&[0x1f, 0x8b, 8, 0]), "gunzip"),
];

const fn refused(name: &'static str, make: Make, says: &'static str) -> Protocol {
    Protocol { name, make, code: 2, prints: "", says }
}

impl Protocol {
    /// Runs the image.
    pub(crate) fn check(&self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let image = match self.make {
            Make::Bytes(bytes) => bytes.to_vec(),
            Make::Assembled(defines) => {
                assemble(include_str!("protocols.S"), 32, defines, &["--section-start=.note.Xen=0x101000"])?
            }
        };
        std::fs::write(folder.path().join("image"), image)?;
        let line = ["run", "image", "--backend", "none", "--memory", "16M", "--time-limit", "50s", "--append", "hello"];
        let output = vpmu(folder.path(), &line).output()?;
        let report = text(&output.stderr);
        ensure!(output.status.code() == Some(self.code), "{}: {report}", output.status);
        ensure!(text(&output.stdout) == self.prints && report.contains(self.says), "{output:?}");
        Ok(())
    }
}
