//! The laboratory: workloads on hosts in namespaces, probes, runs, records, statistics, reports.

pub mod record;
