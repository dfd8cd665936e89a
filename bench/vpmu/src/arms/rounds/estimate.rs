//! Estimates the time of a plan before it begins.

use std::time::Duration;

use host_pmu::backend::BackendKey;

use super::plan::Plan;

/// Counts per second of an event that counts cycles, or stands in for them.
const RATE: f64 = 2e9;
/// Share of a turn that handlers and exits add.
const OVERHEAD: f64 = 1.25;
/// Making a guest, the first tick included, and its end.
const START: Duration = Duration::from_millis(25);

impl Plan {
    /// Estimates how long `arms` arms take on a host like those it was tried on, without the boots of Linux guests. The rate of a
    /// tracepoint is unknown: its time limit counts.
    pub fn estimate(&self, arms: usize) -> Duration {
        let bounded = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let arms = u32::try_from(arms).unwrap_or(u32::MAX);
        let warmups = self.warmups();
        let guests = self.guests();
        let ticks = u32::try_from(self.guest.boot.baseline_ticks + self.guest.boot.tail_ticks).unwrap_or(u32::MAX);
        let start = START + Duration::from_nanos(self.parameters.mux_interval_ns).saturating_mul(ticks);
        let turns = self.turn(self.parameters.samples).saturating_mul(bounded(self.parameters.rounds));
        let turns = turns.saturating_add(self.turn(self.parameters.warmup_samples).saturating_mul(bounded(warmups)));
        let all = turns.saturating_add(start.saturating_mul(bounded(guests))).saturating_mul(arms);
        self.duration().map_or(all, |bound| all.min(bound))
    }

    /// Estimates the rounds that `arms` arms have time for, warm-ups included.
    #[expect(clippy::cast_sign_loss, reason = "neither time nor rounds are negative")]
    pub fn expected_rounds(&self, arms: usize) -> u64 {
        let all = self.parameters.rounds.saturating_add(self.warmups());
        let mut unbounded = self.clone();
        unbounded.parameters.duration_ns = None;
        let unbounded = unbounded.estimate(arms).as_secs_f64().max(f64::MIN_POSITIVE);
        let share = self.estimate(arms).as_secs_f64() / unbounded;
        // Neither negative nor above the number of rounds.
        ((share * all as f64) as u64).clamp(1, all.max(1))
    }

    /// Returns the number of guests of each arm, one after the other.
    pub(super) fn guests(&self) -> u64 {
        if self.keeps_guests() { self.sessions() } else { self.parameters.rounds.saturating_add(self.warmups()) }
    }

    fn sessions(&self) -> u64 {
        self.parameters.rounds.div_ceil(self.rounds_per_guest().max(1))
    }

    /// Returns the number of discarded rounds of the whole run: guests that live on are warmed up once each.
    fn warmups(&self) -> u64 {
        self.parameters.warmup_rounds.saturating_mul(if self.keeps_guests() { self.sessions() } else { 1 })
    }

    fn turn(&self, samples: u64) -> Duration {
        let limit = Duration::from_nanos(self.parameters.time_limit_ns);
        if let Some(played) = &self.played {
            let whole = samples as f64 / played.pmis.max(1) as f64;
            let turn = Duration::try_from_secs_f64(played.time.as_secs_f64() * whole * OVERHEAD);
            return turn.unwrap_or(limit).min(limit);
        }
        let rate = if let BackendKey::CpuClockAt { mhz } = self.backend { f64::from(mhz) * 1e6 } else { RATE };
        let overflows = |event: &guest::abi::EventSpec| match (event.period, self.guest.boot.freq_hz) {
            (0, _) => 0.0,
            (period, 0) => rate / period as f64,
            (_, hz) => hz as f64,
        };
        let rate: f64 = self.guest.boot.events.iter().map(overflows).sum();
        // A workload without samples counts rotations, one a tick.
        let rate = if rate > 0.0 { rate } else { 1.0 / (self.parameters.mux_interval_ns as f64 / 1e9) };
        let turn = Duration::try_from_secs_f64(samples as f64 / rate * OVERHEAD).unwrap_or(limit);
        if matches!(self.backend, BackendKey::Tracepoint { .. }) { limit } else { turn.min(limit) }
    }
}
