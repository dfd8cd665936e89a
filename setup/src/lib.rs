//! Setting up many perf events on many CPUs, as `perf stat` must, and what each way of doing it costs.
