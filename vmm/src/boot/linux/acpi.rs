//! ACPI tables of a Linux guest (ACPI 6.5, chapter 5): CPUs, I/O APIC, serial port, virtio devices, power-off and reset.
//!
//! The hardware-reduced model: no fixed hardware but the registers for sleep and reset, so the guest's start-up has less to
//! probe.

use acpi_tables::Aml;
use acpi_tables::aml::{Device, EISAName, IO, Interrupt, Memory32Fixed, Name, Package, Path, ResourceTemplate, Scope};
use acpi_tables::fadt::FADTBuilder;
use acpi_tables::gas::{AccessSize, AddressSpace, GAS};
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;

use super::layout::{ACPI, HIGH_START, VIRTIO, VIRTIO_GSI, VIRTIO_SIZE};

/// Port that takes the sleep type; its status follows it.
pub const SLEEP_CONTROL: u16 = 0x600;
/// Port that says that the guest woke up, which it never does.
pub const SLEEP_STATUS: u16 = 0x601;
/// Sleep type of soft off.
pub const SOFT_OFF: u8 = 5;
/// SLP_EN of the sleep control register; the type is left of bit 2.
pub const SLEEP_ENABLE: u8 = 1 << 5;
/// Port and value of a reset.
pub const RESET: (u16, u8) = (0xcf9, 0x06);

/// Who made the tables, and which.
const MAKER: [u8; 6] = *b"VPMULB";
const MODEL: [u8; 8] = *b"VPMULAB ";

const LAPIC: u32 = 0xfee0_0000;
const IOAPIC: u32 = 0xfec0_0000;
/// COM1 and its interrupt.
const SERIAL: (u16, u32) = (0x3f8, 4);

/// Hardware-reduced, reset register, no fixed power and sleep buttons, WBINVD.
const FLAGS: u32 = 1 << 20 | 1 << 10 | 1 << 5 | 1 << 4 | 1;
/// No VGA, no MSI (there is no PCI), no ASPM, no CMOS clock; no 8042 and no other legacy device.
const BOOT_FLAGS: u16 = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;

/// Builds the tables of `cpus` CPUs, and of a virtio device if there is one, to be placed at [`ACPI`].
pub fn tables(cpus: usize, virtio: bool) -> Vec<u8> {
    let mut out = vec![0; 64];
    let mut place = |table: Vec<u8>| {
        let at = ACPI + out.len() as u64;
        out.extend(table);
        out.resize(out.len().next_multiple_of(16), 0);
        at
    };
    let dsdt = place(dsdt(virtio));
    let fadt = place(fadt(dsdt));
    let madt = place(madt(cpus));
    let xsdt = place(table(*b"XSDT", 1, &[fadt.to_le_bytes(), madt.to_le_bytes()].concat()));
    out[..36].copy_from_slice(&bytes(&Rsdp::new(MAKER, xsdt)));
    debug_assert!(ACPI + out.len() as u64 <= HIGH_START);
    out
}

fn bytes(of: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    of.to_aml_bytes(&mut bytes);
    bytes
}

fn table(signature: [u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let mut table = Sdt::new(signature, 36, revision, MAKER, MODEL, 1);
    table.append_slice(body);
    table.as_slice().to_vec()
}

/// Describes a register of one byte at an I/O port.
fn register(port: u16) -> GAS {
    GAS::new(AddressSpace::SystemIo, 8, 0, AccessSize::ByteAccess, port.into())
}

fn fadt(dsdt: u64) -> Vec<u8> {
    let mut table = FADTBuilder::new(MAKER, MODEL, 1).dsdt_64(dsdt);
    table.iapc_boot_arch = BOOT_FLAGS.into();
    table.flags = FLAGS.into();
    table.reset_reg = register(RESET.0);
    table.reset_value = RESET.1;
    table.sleep_control_reg = register(SLEEP_CONTROL);
    table.sleep_status_reg = register(SLEEP_STATUS);
    bytes(&table.finalize())
}

fn madt(cpus: usize) -> Vec<u8> {
    let mut body = [LAPIC.to_le_bytes(), [0; 4]].concat();
    for cpu in 0..cpus as u32 {
        // Enabled. APIC ids of 255 and above exist in x2APIC mode only.
        match u8::try_from(cpu) {
            Ok(id) if id < u8::MAX => body.extend([0, 8, id, id, 1, 0, 0, 0]),
            _ => {
                body.extend([9, 16, 0, 0]);
                body.extend([cpu, 1, cpu].map(u32::to_le_bytes).concat());
            }
        }
    }
    body.extend([1, 12, 0, 0]);
    body.extend([IOAPIC, 0].map(u32::to_le_bytes).concat());
    table(*b"APIC", 5, &body)
}

fn device(path: &str, parts: &[(&str, &dyn Aml)]) -> Vec<u8> {
    let parts: Vec<_> = parts.iter().map(|(name, value)| Name::new(Path::new(name), *value)).collect();
    bytes(&Device::new(Path::new(path), parts.iter().map(|part| part as &dyn Aml).collect()))
}

/// Describes an interrupt: edge, active high, not shared.
fn interrupt(gsi: u32) -> Interrupt {
    Interrupt::new(true, true, false, false, gsi)
}

fn dsdt(virtio: bool) -> Vec<u8> {
    let (line, ports) = (interrupt(SERIAL.1), IO::new(SERIAL.0, SERIAL.0, 1, 8));
    let resources = ResourceTemplate::new(vec![&line, &ports]);
    let serial = device("COM1", &[("_HID", &EISAName::new("PNP0501")), ("_UID", &0_u8), ("_CRS", &resources)]);
    let channel = virtio.then(|| {
        let (window, line) = (Memory32Fixed::new(true, VIRTIO as u32, VIRTIO_SIZE as u32), interrupt(VIRTIO_GSI));
        let resources = ResourceTemplate::new(vec![&window, &line]);
        device("VI00", &[("_HID", &"LNRO0005"), ("_UID", &0_u8), ("_CCA", &1_u8), ("_CRS", &resources)])
    });
    let bus = Scope::raw(Path::new("\\_SB_"), [Some(serial), channel].into_iter().flatten().flatten().collect());
    let soft_off = Name::new(Path::new("_S5_"), &Package::new(vec![&SOFT_OFF, &0_u8, &0_u8, &0_u8]));
    table(*b"DSDT", 2, &[bus, bytes(&soft_off)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    /// Returns the table at a guest-physical address.
    fn at(all: &[u8], address: u64) -> &[u8] {
        let start = (address - ACPI) as usize;
        &all[start..start + number(&all[start + 4..start + 8]) as usize]
    }

    #[test]
    fn every_table_is_reached_and_adds_up() {
        for (cpus, virtio) in [(1, false), (254, true), (300, true)] {
            let all = tables(cpus, virtio);
            assert_eq!((&all[..8], sum(&all[..20]), sum(&all[..36])), (&b"RSD PTR "[..], 0, 0));
            let xsdt = at(&all, number(&all[24..32]));
            let found: Vec<_> = xsdt[36..].chunks(8).map(|entry| at(&all, number(entry))).collect();
            let dsdt = at(&all, number(&found[0][140..148]));
            for (table, signature) in [(xsdt, b"XSDT"), (found[0], b"FACP"), (found[1], b"APIC"), (dsdt, b"DSDT")] {
                assert_eq!((&table[..4], sum(table)), (&signature[..], 0));
            }
            assert_eq!(found[0].len(), 276);
            let devices = dsdt.windows(8).filter(|window| *window == b"LNRO0005").count();
            assert_eq!(devices, usize::from(virtio));
            assert!(ACPI + all.len() as u64 <= HIGH_START);
        }
    }

    #[test]
    fn each_cpu_has_its_entry() {
        let madt = madt(300);
        let (mut rest, mut ids, mut others) = (&madt[44..], Vec::new(), 0);
        while let [kind, length, ..] = *rest {
            let entry = &rest[..usize::from(length)];
            match kind {
                0 => ids.push(u32::from(entry[3])),
                9 => ids.push(number(&entry[4..8]) as u32),
                _ => others += 1,
            }
            rest = &rest[usize::from(length)..];
        }
        assert!(ids.into_iter().eq(0..300));
        assert_eq!(others, 1, "the I/O APIC");
    }
}
