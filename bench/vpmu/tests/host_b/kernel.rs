//! The kernel inside a bzImage.
//!
//! A bzImage unpacks itself, which takes longer under software emulation than all the rest of the boot. The same ELF
//! image taken out here and entered by PVH boots in half the time. Source: Documentation/arch/x86/boot.rst,
//! `payload_offset` and `payload_length`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use super::parts::Parts;

/// The kernel in the quickest form that can be had: the unpacked image, else the bzImage as it is.
pub(crate) fn bootable(parts: &Parts) -> PathBuf {
    static UNPACKED: Mutex<Option<(PathBuf, PathBuf)>> = Mutex::new(None);
    let mut unpacked = UNPACKED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((from, to)) = unpacked.as_ref()
        && *from == parts.kernel
        && to.is_file()
    {
        return to.clone();
    }
    match unpack(parts) {
        Ok(path) => {
            *unpacked = Some((parts.kernel.clone(), path.clone()));
            path
        }
        Err(why) => {
            eprintln!("# the kernel unpacks itself, which is slow: {why:#}");
            parts.kernel.clone()
        }
    }
}

fn unpack(parts: &Parts) -> Result<PathBuf> {
    let image = std::fs::read(&parts.kernel)?;
    let (tool, packed) = payload(&image)?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut input = tempfile::tempfile_in(folder)?;
    std::io::Write::write_all(&mut input, packed)?;
    std::io::Seek::rewind(&mut input)?;
    let output = tempfile::NamedTempFile::new_in(folder)?;
    let status = Command::new(tool)
        .arg("-dc")
        .stdin(input)
        .stdout(output.reopen()?)
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {tool}"))?;
    ensure!(status.success(), "{tool} failed");
    let mut magic = [0; 4];
    std::io::Read::read_exact(&mut File::open(output.path())?, &mut magic)?;
    ensure!(magic == *b"\x7fELF", "what was packed is not an ELF image");
    // The file has a name of its own: test processes boot different kernels at the same time.
    let to = folder.join(format!("host-b-vmlinux-{}", parts.release()));
    output.persist(&to)?;
    Ok(to)
}

/// The packed kernel and the tool that unpacks it.
fn payload(image: &[u8]) -> Result<(&'static str, &[u8])> {
    let word = |at: usize| {
        let bytes = image.get(at..at + 4).context("too short for a bzImage")?;
        Ok::<_, anyhow::Error>(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    ensure!(word(0x202)? == u32::from_le_bytes(*b"HdrS"), "no bzImage");
    ensure!(word(0x206)? & 0xffff >= 0x208, "boot protocol before 2.08");
    // The real-mode part: one boot sector and this many more; 0 means 4.
    let sectors = match image[0x1f1] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + usize::try_from(word(0x248)?)?;
    let end = start.checked_add(usize::try_from(word(0x24c)?)?).context("payload length")?;
    let packed = image.get(start..end).context("the payload lies outside of the file")?;
    ensure!(packed.len() > 8, "no payload");
    if packed.starts_with(b"\xfd7zXZ\0") {
        // The build appends the unpacked size.
        Ok(("xz", &packed[..packed.len() - 4]))
    } else {
        ensure!(packed.starts_with(b"\x1f\x8b"), "packing {:02x?} is unknown", packed.get(..4));
        Ok(("zcat", packed))
    }
}

/// Hand-made headers.
pub(crate) fn check() -> Result<()> {
    let mut image = vec![0; 4096];
    ensure!(payload(&image).is_err() && payload(&[]).is_err());
    image[0x1f1] = 1;
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
    image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
    image[0x24c..0x250].copy_from_slice(&14_u32.to_le_bytes());
    ensure!(payload(&image).is_err(), "unknown packing was taken");
    image[1040..1054].copy_from_slice(b"\xfd7zXZ\0data\x04\0\0\0");
    ensure!(payload(&image)? == ("xz", b"\xfd7zXZ\0data".as_slice()));
    image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
    ensure!(payload(&image).is_err(), "a payload beyond the file was taken");
    Ok(())
}
