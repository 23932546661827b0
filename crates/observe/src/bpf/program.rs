//! The programs of `bpf/kernel.bpf.c`.

/// One program, by the tracepoint it is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each has the name of its tracepoint")]
pub enum Program {
    SchedSwitch,
    SchedMigrateTask,
    KfreeSkb,
    IrqHandlerEntry,
    IrqHandlerExit,
    SoftirqEntry,
    SoftirqExit,
    NapiPoll,
    IpiSendCpu,
    IpiSendCpumask,
    CsdQueueCpu,
    ContentionBegin,
    ContentionEnd,
    /// A tick of the CPU clock.
    CpuClock,
    /// Entry of the user's function.
    FunctionEntry,
    /// Its return.
    FunctionReturn,
    /// Entry of the kernel's function.
    KernelEntry,
    /// Its return.
    KernelReturn,
}

use Program::*;

impl Program {
    /// Programs of tracepoints. One that ends a measurement is attached before the one that begins
    /// it, so that no beginning is left over.
    pub const TRACEPOINTS: [Self; 13] = [
        SchedSwitch,
        SchedMigrateTask,
        KfreeSkb,
        IrqHandlerExit,
        IrqHandlerEntry,
        SoftirqExit,
        SoftirqEntry,
        NapiPoll,
        IpiSendCpu,
        IpiSendCpumask,
        CsdQueueCpu,
        ContentionEnd,
        ContentionBegin,
    ];

    /// Returns the name of the function in the object, and of the tracepoint where it has one.
    pub fn name(self) -> &'static str {
        match self {
            SchedSwitch => "sched_switch",
            SchedMigrateTask => "sched_migrate_task",
            KfreeSkb => "kfree_skb",
            IrqHandlerEntry => "irq_handler_entry",
            IrqHandlerExit => "irq_handler_exit",
            SoftirqEntry => "softirq_entry",
            SoftirqExit => "softirq_exit",
            NapiPoll => "napi_poll",
            IpiSendCpu => "ipi_send_cpu",
            IpiSendCpumask => "ipi_send_cpumask",
            CsdQueueCpu => "csd_queue_cpu",
            ContentionBegin => "contention_begin",
            ContentionEnd => "contention_end",
            CpuClock => "cpu_clock",
            FunctionEntry => "function_entry",
            FunctionReturn => "function_return",
            KernelEntry => "kernel_entry",
            KernelReturn => "kernel_return",
        }
    }
}
