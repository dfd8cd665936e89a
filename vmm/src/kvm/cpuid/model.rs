//! The processors that a guest may have.

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use arch_pmu::intel::IntelCaps;
use arch_pmu::spec::Vendor;

/// The guest's processor, by which an operating system chooses its PMU driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cpu {
    /// Cascade Lake SP.
    #[default]
    CascadeLake,
    /// An Intel processor of family 6 with a model number that none has: Linux drives its PMU by CPUID leaf 0AH alone.
    Generic,
    /// AMD EPYC 7003: six counters, each started by its own enable (PERFCTR_CORE).
    Milan,
    /// AMD EPYC 9004: PerfMonV2 with six counters.
    Genoa,
}

impl Cpu {
    /// Returns CPUID.1:EAX: family 6, model 85, stepping 7, or model 255; family 25, model 1 or 17, stepping 1.
    pub(super) const fn signature(self) -> u32 {
        match self {
            Self::CascadeLake => 0x0005_0657,
            Self::Generic => 0x000f_06f0,
            Self::Milan => 0x00a0_0f11,
            Self::Genoa => 0x00a1_0f11,
        }
    }

    /// The processors by name.
    pub const ALL: [(&str, Self); 4] =
        [("clx", Self::CascadeLake), ("generic", Self::Generic), ("milan", Self::Milan), ("genoa", Self::Genoa)];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, cpu)| *cpu == self).map_or("", |(name, _)| name)
    }

    /// Returns its vendor.
    #[must_use]
    pub const fn vendor(self) -> Vendor {
        match self {
            Self::CascadeLake | Self::Generic => Vendor::Intel,
            Self::Milan | Self::Genoa => Vendor::Amd,
        }
    }

    /// Returns its PMU, as KVM shows it.
    #[must_use]
    pub fn pmu(self) -> PmuCaps {
        self.pmu_of_version(IntelCaps::default().version)
    }

    /// Returns its PMU; an Intel's has a `version`.
    #[must_use]
    pub fn pmu_of_version(self, version: u8) -> PmuCaps {
        match self {
            Self::CascadeLake | Self::Generic => PmuCaps::Intel(IntelCaps { version, ..IntelCaps::default() }),
            Self::Milan => PmuCaps::Amd(AmdCaps::default()),
            Self::Genoa => PmuCaps::Amd(AmdCaps::GENOA),
        }
    }
}
